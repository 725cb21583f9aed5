//! What this machine's UCX says of itself. Without UCX there is nothing to test but that its absence is said clearly.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use ucx_sys::*;

/// UCX, or the reason why there is none, on a machine that need not have it.
fn ucx() -> Option<&'static Ucx> {
    let stack = signal_stack();
    let found = Ucx::load();
    // Whichever test loads it: the stack is its thread's.
    assert_eq!(signal_stack(), stack, "UCX's alternate stack was left");
    match found {
        Ok(ucx) => Some(ucx),
        Err(error) => {
            assert!(error.to_string().contains("help: install it"), "{error}");
            assert!(
                std::env::var_os("IFUNC_REQUIRE_UCX").is_none(),
                "UCX is required here: {error}"
            );
            eprintln!("not tested: {error}");
            None
        }
    }
}

fn handler(signal: i32) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action changes nothing.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: written by the call that succeeded; zeroes are a valid value, too.
    unsafe { action.assume_init() }.sa_sigaction
}

/// Address and flags of this thread's alternate stack.
fn signal_stack() -> (usize, i32) {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: a null stack changes nothing.
    let done = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: written by the call that succeeded; zeroes are a valid value, too.
    let stack = unsafe { stack.assume_init() };
    (stack.ss_sp.addr(), stack.ss_flags)
}

/// A context and a worker of it.
struct Worker {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: ucp_worker_h,
}

impl Worker {
    fn new(ucx: &'static Ucx) -> Self {
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: u64::from(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP),
            ..ucp_params_t::default()
        };
        let mut context: ucp_context_h = std::ptr::null_mut();
        // SAFETY: the parameters are as their mask says; a null configuration is the environment's.
        let status = unsafe { ucx.ucp_init(&raw const params, std::ptr::null(), &raw mut context) };
        ucx.check(status).unwrap();
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            ..ucp_worker_params_t::default()
        };
        let mut worker: ucp_worker_h = std::ptr::null_mut();
        // SAFETY: as above; the context is alive.
        let status = unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut worker) };
        ucx.check(status).unwrap();
        Self { ucx, context, worker }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and this is their last use.
        unsafe {
            self.ucx.ucp_worker_destroy(self.worker);
            self.ucx.ucp_cleanup(self.context);
        }
    }
}

#[test]
fn says_its_version() {
    let Some(ucx) = ucx() else { return };
    let version = ucx.version();
    assert!((version.major, version.minor) >= (1, 13), "{version}");
    // SAFETY: a string constant of the library.
    let text = unsafe { CStr::from_ptr(ucx.ucp_get_version_string()) };
    assert!(text.to_str().unwrap().starts_with(&version.to_string()));
    assert_eq!(ucx.status(UCS_ERR_REJECTED).code, UCS_ERR_REJECTED);
    assert!(ucx.status(UCS_ERR_REJECTED).message().contains("reject"));
    assert_eq!(ucx.check_ptr(UCS_STATUS_PTR(UCS_OK)), Ok(()));
    assert!(ucx.check_ptr(UCS_STATUS_PTR(UCS_ERR_NO_MEMORY)).is_err());
}

#[test]
fn texts_of_statuses_stay_what_they_are() {
    let Some(ucx) = ucx() else { return };
    let all: Vec<_> = (i8::MIN..=1)
        .map(|code| ucx.status(code as ucs_status_t))
        .collect();
    let before: Vec<_> = all.iter().map(|status| status.message().to_owned()).collect();
    // UCX's buffer for what it does not know: what was handed out is not there, so that this does not change it.
    // SAFETY: asks nothing of its callers; no other test calls it with such a number.
    let buffer = unsafe { ucx.ucs_status_string(-99) };
    for (status, before) in all.iter().zip(before) {
        assert_ne!(status.message().as_ptr(), buffer.cast::<u8>(), "{}", status.code);
        assert_eq!(status.message(), before);
    }
    assert_eq!(ucx.status(-99).to_string(), "a status that has no name (-99)");
    assert_eq!(
        ucx.status(UCS_ERR_FIRST_LINK_FAILURE).message(),
        ucx.status(-99).message()
    );
    assert_eq!(
        all.iter()
            .filter(|status| status.message() != ucx.status(-99).message())
            .count(),
        28
    );
}

#[test]
fn loading_and_initialising_leaves_the_signal_handlers() {
    const SIGNALS: [i32; 6] = [
        libc::SIGILL,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGABRT,
        libc::SIGHUP,
    ];
    let linked = cfg!(feature = "link");
    let before = SIGNALS.map(handler);
    let Some(ucx) = ucx() else { return };
    drop(Worker::new(ucx));
    // Other tests of this process may have loaded it before; then what they left is what was there.
    assert!(linked || SIGNALS.map(handler) == before);
    if !linked {
        // Rust's own, which tells a stack overflow, is installed; UCX's for SIGFPE is not.
        assert_ne!(handler(libc::SIGSEGV), libc::SIG_DFL);
        assert_eq!(handler(libc::SIGFPE), libc::SIG_DFL);
    }
}

#[test]
fn a_worker_says_which_transports_and_devices_it_has() {
    let Some(ucx) = ucx() else { return };
    let worker = Worker::new(ucx);
    // SAFETY: the context is alive.
    let text = unsafe { ucx.context_info(worker.context) };
    assert!(
        text.contains("resource") && text.contains("self"),
        "UCX printed:\n{text}"
    );
    let mut attr = ucp_context_attr_t {
        field_mask: u64::from(UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_THREAD_MODE),
        ..ucp_context_attr_t::default()
    };
    // SAFETY: the context is alive; the fields of the mask are written.
    ucx.check(unsafe { ucx.ucp_context_query(worker.context, &raw mut attr) })
        .unwrap();
    assert!(attr.request_size > 0 && attr.request_size < 1 << 20);
    let mut attr = ucp_worker_attr_t {
        field_mask: u64::from(UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER),
        ..ucp_worker_attr_t::default()
    };
    // SAFETY: the worker is alive; the fields of the mask are written.
    ucx.check(unsafe { ucx.ucp_worker_query(worker.worker, &raw mut attr) })
        .unwrap();
    assert!(attr.max_am_header >= 24, "a frame's header does not fit");
}

#[test]
fn an_idle_worker_can_be_slept_on() {
    let Some(ucx) = ucx() else { return };
    let worker = Worker::new(ucx);
    let mut fd = -1;
    // SAFETY: the worker is alive, used by this thread alone, and its context has the feature `WAKEUP`.
    unsafe {
        ucx.check(ucx.ucp_worker_get_efd(worker.worker, &raw mut fd))
            .unwrap();
        while ucx.ucp_worker_arm(worker.worker) == UCS_ERR_BUSY {
            ucx.ucp_worker_progress(worker.worker);
        }
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&raw mut poll, 1, 0), 0);
        ucx.check(ucx.ucp_worker_signal(worker.worker)).unwrap();
        assert_eq!(libc::poll(&raw mut poll, 1, 10_000), 1);
    }
}
