//! The application: UCX by its C interface, and nothing of ifunc.

use std::cell::Cell;
use std::ffi::c_void;

use ucx_sys::*;

/// The id of its active messages.
const MESSAGE: u32 = 5;
const TAG: u64 = 0x00a9_9000;
const DONE: u64 = 0x00d0_4e00;
/// Bytes of a message; every seventh is so large that it is fetched.
const SMALL: usize = 64;
const LARGE: usize = 200_000;

/// Context, worker and endpoint, and what it counts.
pub(crate) struct Application {
    ucx: &'static Ucx,
    pub(crate) context: ucp_context_h,
    pub(crate) worker: ucp_worker_h,
    pub(crate) ep: ucp_ep_h,
    pub(crate) tags_received: u64,
    pub(crate) messages_received: u64,
    arrived: Box<Cell<Vec<Vec<u8>>>>,
    receiving: Option<(ucs_status_ptr_t, Box<[u8]>)>,
    told: Option<(ucs_status_ptr_t, Box<[u8]>)>,
    sending: Vec<(ucs_status_ptr_t, Box<[u8]>)>,
}

fn content(n: u64, salt: u8) -> Box<[u8]> {
    let len = if n % 7 == 6 { LARGE } else { SMALL };
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ salt).collect();
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes.into()
}

/// Called by UCX, with `arrived` as `arg`. Only eager messages come: the sender says so.
unsafe extern "C" fn on_message(
    arg: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    _param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: `arrived`, which outlives the worker and is used on this thread only; the data are readable.
    let (arrived, data) = unsafe {
        (
            &*arg.cast::<Cell<Vec<Vec<u8>>>>(),
            std::slice::from_raw_parts(data.cast::<u8>(), len),
        )
    };
    let mut all = arrived.take();
    all.push(data.to_vec());
    arrived.set(all);
    UCS_OK
}

impl Application {
    pub(crate) fn new(wakeup: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let ucx = Ucx::load()?;
        let features = UCP_FEATURE_AM | UCP_FEATURE_TAG | if wakeup { UCP_FEATURE_WAKEUP } else { 0 };
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: features.into(),
            ..ucp_params_t::default()
        };
        let (mut context, mut worker) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the parameters are as their mask says; without a configuration it is the environment's.
        ucx.check(unsafe { ucx.ucp_init(&raw const params, std::ptr::null(), &raw mut context) })?;
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: UCS_THREAD_MODE_SINGLE,
            ..ucp_worker_params_t::default()
        };
        // SAFETY: the context is alive.
        ucx.check(unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut worker) })?;
        let arrived = Box::new(Cell::new(Vec::new()));
        let handler = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: MESSAGE,
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_message),
            arg: (&raw const *arrived).cast_mut().cast(),
        };
        // SAFETY: the worker is alive, and destroyed before `arrived` is dropped.
        ucx.check(unsafe { ucx.ucp_worker_set_am_recv_handler(worker, &raw const handler) })?;
        Ok(Self {
            ucx,
            context,
            worker,
            ep: std::ptr::null_mut(),
            tags_received: 0,
            messages_received: 0,
            arrived,
            receiving: None,
            told: None,
            sending: Vec::new(),
        })
    }

    /// The worker's, as hexadecimal digits.
    pub(crate) fn address(&self) -> Result<String, Status> {
        let (mut address, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the worker is alive, and both are written.
        let status = unsafe {
            self.ucx
                .ucp_worker_get_address(self.worker, &raw mut address, &raw mut len)
        };
        self.ucx.check(status)?;
        // SAFETY: UCX wrote so many bytes, and has them until they are released.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // SAFETY: the worker's own.
        unsafe { self.ucx.ucp_worker_release_address(self.worker, address) };
        Ok(text)
    }

    pub(crate) fn connect(&mut self, peer: &str) -> Result<(), Box<dyn std::error::Error>> {
        let bytes = (0..peer.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&peer[at..at + 2], 16))
            .collect::<Result<Vec<u8>, _>>()?;
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
            address: bytes.as_ptr().cast(),
            ..ucp_ep_params_t::default()
        };
        // SAFETY: the worker is alive, the address was printed by this program.
        let status = unsafe {
            self.ucx
                .ucp_ep_create(self.worker, &raw const params, &raw mut self.ep)
        };
        self.ucx.check(status)?;
        self.receiving = Some(self.receive(TAG, LARGE));
        self.told = Some(self.receive(DONE, SMALL));
        Ok(())
    }

    fn receive(&self, tag: u64, len: usize) -> (ucs_status_ptr_t, Box<[u8]>) {
        let mut room = vec![0; len].into_boxed_slice();
        let params = ucp_request_param_t::default();
        // SAFETY: the room stays where it is until the request has ended.
        let request = unsafe {
            self.ucx.ucp_tag_recv_nbx(
                self.worker,
                room.as_mut_ptr().cast(),
                len,
                tag,
                u64::MAX,
                &raw const params,
            )
        };
        (request, room)
    }

    fn send_tag(&mut self, tag: u64, bytes: Box<[u8]>) {
        let params = ucp_request_param_t::default();
        // SAFETY: the endpoint is alive; the bytes stay where they are until the request has ended.
        let request = unsafe {
            self.ucx.ucp_tag_send_nbx(
                self.ep,
                bytes.as_ptr().cast(),
                bytes.len(),
                tag,
                &raw const params,
            )
        };
        self.sending.push((request, bytes));
    }

    /// The `n`th message of each kind.
    pub(crate) fn send(&mut self, n: u64) {
        self.send_tag(TAG, content(n, 1));
        let bytes = content(n, 2);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags: UCP_AM_SEND_FLAG_EAGER,
            ..ucp_request_param_t::default()
        };
        // SAFETY: as above.
        let request = unsafe {
            self.ucx.ucp_am_send_nbx(
                self.ep,
                MESSAGE,
                std::ptr::null(),
                0,
                bytes.as_ptr().cast(),
                bytes.len(),
                &raw const params,
            )
        };
        self.sending.push((request, bytes));
    }

    pub(crate) fn tell_done(&mut self) {
        self.send_tag(DONE, vec![7; SMALL].into());
    }

    pub(crate) fn is_told_done(&mut self) -> bool {
        self.told
            .as_ref()
            .is_none_or(|(request, _)| self.has_ended(*request))
            && self.is_idle()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.sending.len() < 16
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_empty()
    }

    fn has_ended(&self, request: ucs_status_ptr_t) -> bool {
        assert!(!UCS_PTR_IS_ERR(request), "{:?}", self.ucx.check_ptr(request));
        // SAFETY: a request that was not freed.
        !UCS_PTR_IS_PTR(request) || unsafe { self.ucx.ucp_request_check_status(request) } != UCS_INPROGRESS
    }

    fn free(&self, request: ucs_status_ptr_t) {
        if UCS_PTR_IS_PTR(request) {
            // SAFETY: it has ended, and is used for the last time.
            unsafe { self.ucx.ucp_request_free(request) };
        }
    }

    /// Progress, and what came of it.
    pub(crate) fn progress(&mut self) {
        // SAFETY: the worker is alive and this thread's.
        unsafe { self.ucx.ucp_worker_progress(self.worker) };
        let (over, still) = std::mem::take(&mut self.sending)
            .into_iter()
            .partition::<Vec<_>, _>(|(request, _)| self.has_ended(*request));
        self.sending = still;
        over.into_iter().for_each(|(request, _)| self.free(request));
        while let Some((request, room)) = self.receiving.take() {
            if !self.has_ended(request) {
                self.receiving = Some((request, room));
                break;
            }
            self.free(request);
            let expected = content(self.tags_received, 1);
            assert!(
                room[..expected.len()] == expected[..],
                "message {} by tag",
                self.tags_received
            );
            self.tags_received += 1;
            self.receiving = Some(self.receive(TAG, LARGE));
        }
        for message in self.arrived.take() {
            assert!(
                message == *content(self.messages_received, 2),
                "active message {}",
                self.messages_received
            );
            self.messages_received += 1;
        }
    }

    /// A last message both ways: the worker still works.
    pub(crate) fn goodbye(&mut self) {
        if let Some((request, _)) = self.told.take() {
            self.free(request);
        }
        self.told = Some(self.receive(DONE + 1, SMALL));
        self.send_tag(DONE + 1, vec![8; SMALL].into());
        while !self.is_told_done() {
            self.progress();
        }
    }

    /// Closes the endpoint, destroys the worker and the context.
    pub(crate) fn end(mut self) {
        for (request, _) in self.receiving.take().into_iter().chain(self.told.take()) {
            if UCS_PTR_IS_PTR(request) {
                if !self.has_ended(request) {
                    // SAFETY: a request of this worker that was not freed.
                    unsafe { self.ucx.ucp_request_cancel(self.worker, request) };
                }
                while !self.has_ended(request) {
                    // SAFETY: the worker is alive and this thread's.
                    unsafe { self.ucx.ucp_worker_progress(self.worker) };
                }
                self.free(request);
            }
        }
        let params = ucp_request_param_t::default();
        // SAFETY: the endpoint is alive and used for the last time.
        let request = unsafe { self.ucx.ucp_ep_close_nbx(self.ep, &raw const params) };
        while !UCS_PTR_IS_ERR(request) && !self.has_ended(request) {
            // SAFETY: the worker is alive and this thread's.
            unsafe { self.ucx.ucp_worker_progress(self.worker) };
        }
        self.free(request);
        // SAFETY: alive, and used for the last time.
        unsafe {
            self.ucx.ucp_worker_destroy(self.worker);
            self.ucx.ucp_cleanup(self.context);
        }
    }
}
