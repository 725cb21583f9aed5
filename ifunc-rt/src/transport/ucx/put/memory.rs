//! Memory that UCX allocates and peers write to, and the key to a peer's.

use std::ffi::c_void;

use ucx_sys::*;

use super::layout::Layout;
use super::offer::Offer;
use crate::transport::ucx::engine::{Locked, Refused};

/// A side's own memory, and the peer's as far as this side may use it. Ended by [`Locked::end_memory`].
#[derive(Debug)]
pub(in super::super) struct Memory {
    handle: ucp_mem_h,
    base: *mut u8,
    /// Null until the peer gave it.
    key: ucp_rkey_h,
    /// Where the peer's memory is in the peer.
    remote: u64,
}

impl Memory {
    pub(in super::super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(in super::super) fn key(&self) -> ucp_rkey_h {
        self.key
    }

    pub(in super::super) fn remote(&self, offset: usize) -> u64 {
        self.remote + offset as u64
    }
}

impl Locked<'_> {
    /// Memory for a ring. Over shared memory only what UCX allocates itself is written without the system's help.
    pub(in super::super) fn new_memory(&mut self, layout: Layout) -> Result<Memory, Refused> {
        let (ucx, context) = (self.ucx(), self.context());
        let refused = |doing| move |status| Refused { doing, status };
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS),
            length: layout.len(),
            flags: UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_NONBLOCK,
            ..ucp_mem_map_params_t::default()
        };
        let mut memory = Memory {
            handle: std::ptr::null_mut(),
            base: std::ptr::null_mut(),
            key: std::ptr::null_mut(),
            remote: 0,
        };
        // SAFETY: the context is alive; the parameters are as their mask says.
        let status = unsafe { ucx.ucp_mem_map(context, &raw const params, &raw mut memory.handle) };
        ucx.check(status)
            .map_err(refused("asking UCX for the memory of a ring"))?;
        let mut attr = ucp_mem_attr_t {
            field_mask: u64::from(UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH),
            ..ucp_mem_attr_t::default()
        };
        // SAFETY: the memory is mapped; the fields of the mask are written.
        let status = unsafe { ucx.ucp_mem_query(memory.handle, &raw mut attr) };
        let judged = ucx
            .check(status)
            .map_err(refused("asking UCX where the memory of a ring is"));
        if judged.is_err() || attr.length < layout.len() || !attr.address.addr().is_multiple_of(64) {
            // SAFETY: mapped above, and used by nobody.
            unsafe { ucx.ucp_mem_unmap(context, memory.handle) };
            judged?;
            return Err(Refused {
                doing: "judging the memory that UCX gave for a ring",
                status: ucx.status(UCS_ERR_NO_MEMORY),
            });
        }
        memory.base = attr.address.cast();
        Ok(memory)
    }

    /// The remote key of a memory.
    pub(in super::super) fn pack_key(&mut self, memory: &Memory) -> Result<Vec<u8>, Refused> {
        let (mut buffer, mut len): (*mut c_void, usize) = (std::ptr::null_mut(), 0);
        // SAFETY: context and memory are alive; both results are written.
        let status = unsafe {
            self.ucx()
                .ucp_rkey_pack(self.context(), memory.handle, &raw mut buffer, &raw mut len)
        };
        self.ucx().check(status).map_err(|status| Refused {
            doing: "asking UCX for the key of a ring",
            status,
        })?;
        // SAFETY: UCX says that it is so long; it is copied, and given back once.
        let key = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }.to_vec();
        // SAFETY: packed above, and used for the last time.
        unsafe { self.ucx().ucp_rkey_buffer_release(buffer) };
        Ok(key)
    }

    /// Makes what the peer gave away usable over `ep`.
    pub(in super::super) fn take_key(
        &mut self,
        memory: &mut Memory,
        ep: ucp_ep_h,
        offer: &Offer,
    ) -> Result<(), Refused> {
        let key = offer.padded_key();
        let mut taken = std::ptr::null_mut();
        // SAFETY: the endpoint is alive and its worker this thread's. UCX is not told how long the key is: what it may read behind
        // it is there.
        let status = unsafe {
            self.ucx()
                .ucp_ep_rkey_unpack(ep, key.as_ptr().cast(), &raw mut taken)
        };
        self.ucx().check(status).map_err(|status| Refused {
            doing: "taking the key of the peer's ring",
            status,
        })?;
        // Only now: UCX leaves a key that it has freed behind where it fails, as over the memory of a peer that is gone.
        (memory.key, memory.remote) = (taken, offer.address);
        Ok(())
    }

    /// Gives memory and key back. The endpoint that the key was used over, and by which the memory was reached, is closed.
    pub(in super::super) fn end_memory(&mut self, mut memory: Memory) {
        self.end_key(&mut memory);
        // SAFETY: the context is alive; nobody has a view of the memory any more.
        let status = unsafe { self.ucx().ucp_mem_unmap(self.context(), memory.handle) };
        if let Err(status) = self.ucx().check(status) {
            tracing::debug!(%status, "giving the memory of a ring back");
        }
    }

    /// Gives the key back, which is of a worker that is still there.
    pub(in super::super) fn end_key(&mut self, memory: &mut Memory) {
        let key = std::mem::replace(&mut memory.key, std::ptr::null_mut());
        if !key.is_null() {
            // SAFETY: unpacked by `take_key`, and used for the last time.
            unsafe { self.ucx().ucp_rkey_destroy(key) };
        }
    }
}
