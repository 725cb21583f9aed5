//! Messages on the source: the memory of a frame, its payload, and the put that sends it.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU64;

use ucx_sys::{
    UCS_ERR_CANCELED, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY,
    UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_PTR_STATUS, Ucx, ucp_ep_h, ucp_request_param_t, ucp_rkey_h,
    ucs_status_t,
};

use crate::frame::{HEAD, Head, Layout, Seen};
use crate::registry::{Payloads, Registration};
use crate::report;
use crate::slot::Slot;

/// Alignment of a frame: that of a cache line, and of each payload.
const ALIGN: usize = 64;
/// Before a frame, the address of the allocation that it lies in.
const BEFORE: usize = size_of::<*mut c_void>();
/// Frames that a thread stores between two that it puts.
const STORES: u32 = 63;

/// Memory of a frame, filled with zeros: no bytes of this process travel that were not written for it. Large blocks cost nothing until they are
/// touched.
fn allocate(len: usize) -> Option<*mut u8> {
    let size = len.checked_add(ALIGN + BEFORE)?;
    // SAFETY: a call without conditions.
    let allocation = unsafe { libc::calloc(1, size) }.cast::<u8>();
    if allocation.is_null() {
        return None;
    }
    let padding = (allocation.addr() + BEFORE).next_multiple_of(ALIGN) - allocation.addr();
    // SAFETY: `padding` is at least `BEFORE` and less than `BEFORE + ALIGN`, so all of it is in the allocation.
    unsafe {
        let frame = allocation.add(padding);
        frame.sub(BEFORE).cast::<*mut u8>().write(allocation);
        Some(frame)
    }
}

/// Frees the memory of a frame.
///
/// # Safety
/// It is of [`allocate`], and not used any more.
pub(crate) unsafe fn free(frame: *mut u8) {
    // SAFETY: the word before it is what `allocate` wrote there.
    unsafe { libc::free(frame.sub(BEFORE).cast::<*mut c_void>().read()) };
}

/// Makes the frame of a message. Returns its address and length.
///
/// # Safety
/// The arguments are what the ifunc's author expects.
///
/// # Errors
/// The status, after a line with the reason.
pub(crate) unsafe fn create(
    ifunc: &Registration,
    source_args: *mut c_void,
    n: usize,
) -> Result<(*mut u8, usize), ucs_status_t> {
    let Registration { name, image, .. } = ifunc;
    let too_long = |bound: usize| {
        report::error(format_args!(
            "a payload of {bound} bytes for `{name}` makes a frame of 4 GiB or more"
        ));
        UCS_ERR_EXCEEDS_LIMIT
    };
    let bound = match &ifunc.payloads {
        // SAFETY: the caller's promise.
        Payloads::Written(functions) => unsafe { functions.bound(source_args, n) },
        Payloads::Copied => n,
    };
    let most = Layout::new(bound, ifunc.payload_align, image.len()).ok_or_else(|| too_long(bound))?;
    let frame = allocate(most.len()).ok_or_else(|| {
        report::error(format_args!(
            "no memory for a message of `{name}` of {} bytes",
            most.len()
        ));
        UCS_ERR_NO_MEMORY
    })?;
    // SAFETY: within the frame.
    let payload = unsafe { frame.add(most.payload_at) };
    let written = match &ifunc.payloads {
        // SAFETY: the caller's promise, and `bound` writable bytes.
        Payloads::Written(functions) => unsafe { functions.init(source_args, n, payload.cast(), bound) },
        Payloads::Copied => {
            if n > 0 {
                // SAFETY: an ifunc without functions of its own takes `n` bytes; they do not overlap a new frame.
                unsafe { ptr::copy_nonoverlapping(source_args.cast(), payload, n) };
            }
            Ok(n)
        }
    };
    let Ok(len) = written else {
        // SAFETY: from above. The author's function reports its reason itself.
        unsafe { free(frame) };
        return Err(UCS_ERR_CANCELED);
    };
    let layout = Layout::new(len, ifunc.payload_align, image.len()).ok_or_else(|| too_long(len))?;
    let head = Head::new(layout, ifunc.entry, ifunc.image_sum);
    // SAFETY: the allocation, which nothing else uses yet; a shorter payload makes a shorter frame.
    let slot = unsafe { Slot::new(frame, layout.len()) };
    slot.write(0, &head.bytes());
    // What the author's function wrote behind its payload.
    let end = layout.payload_at + layout.payload_len;
    slot.write(end, &[0; 8][..layout.image_at() - end]);
    slot.write(layout.image_at(), image);
    head.seal(slot);
    Ok((frame, layout.len()))
}

/// The head of a message's frame, and its memory. `None`: it is no message.
///
/// # Safety
/// `frame` is null, or readable and writable for `len` bytes.
#[inline]
pub(crate) unsafe fn open(frame: *mut u8, len: usize) -> Option<(Head, Slot)> {
    if frame.is_null() || len < HEAD {
        return None;
    }
    // SAFETY: the caller's promise.
    let slot = unsafe { Slot::new(frame, len) };
    match Head::read(slot) {
        Seen::Head(head) if head.layout.len() == len => Some((head, slot)),
        _ => None,
    }
}

thread_local! {
    /// Frames that this thread has stored since it last put one.
    static STORED: Cell<u32> = const { Cell::new(0) };
}

/// Sends a frame.
///
/// Where the target's memory is mapped into this process, the frame is stored, as UCX would do, but the mark last: the target's poll
/// reads it while the frame is written. Code that lies there already is compared, and not stored again. One frame in [`STORES`] is put by UCX, whose status says if it knows that the target is gone.
///
/// # Safety
/// As [`open`]; `ep` and `rkey` are of one target, at which `remote_addr` belongs to the memory of `rkey`.
#[inline]
pub(crate) unsafe fn send(
    ep: ucp_ep_h,
    frame: *mut u8,
    len: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    let Some((head, slot)) = (unsafe { open(frame, len) }) else {
        return UCS_ERR_INVALID_PARAM;
    };
    let ucx = match Ucx::load() {
        Ok(ucx) => ucx,
        Err(error) => {
            report::error(format_args!("{error}"));
            return UCS_ERR_IO_ERROR;
        }
    };
    // A thread that ends puts all.
    let stored = STORED.try_with(Cell::get).unwrap_or(STORES);
    if stored < STORES {
        let mut mapped = ptr::null_mut();
        // SAFETY: the caller's promise, and a variable of this function.
        let status = unsafe { ucx.ucp_rkey_ptr(rkey, remote_addr, &raw mut mapped) };
        let mapped = mapped.cast::<u8>();
        if status == UCS_OK && !mapped.is_null() && mapped.cast::<AtomicU64>().is_aligned() {
            STORED.set(stored + 1);
            // SAFETY: the memory of the key, mapped here, to which the caller sends `len` bytes.
            unsafe { head.store(slot, mapped) };
            return UCS_OK;
        }
    }
    let _ = STORED.try_with(|stored| stored.set(0));
    // The application may have changed the payload since the last time.
    head.seal(slot);
    // SAFETY: the caller's promise.
    unsafe { put(ucx, ep, frame, len, remote_addr, rkey) }
}

/// Puts a frame.
///
/// # Safety
/// As [`send`].
unsafe fn put(
    ucx: &Ucx,
    ep: ucp_ep_h,
    frame: *mut u8,
    len: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // As `ucp_put_nbi` does, which is deprecated.
    // SAFETY: plain data, in which zeros say that no field is used; then the caller's promise.
    unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let request = ucx.ucp_put_nbx(ep, frame.cast(), len, remote_addr, rkey, &raw const param);
        if !UCS_PTR_IS_PTR(request) {
            return UCS_PTR_STATUS(request);
        }
        ucx.ucp_request_free(request);
        UCS_INPROGRESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_and_zero() {
        for len in [1, 63, 64, 4096, 1 << 20] {
            let frame = allocate(len).unwrap();
            assert_eq!(frame.addr() % ALIGN, 0);
            // SAFETY: allocated with this length, and freed once.
            unsafe {
                assert!(
                    std::slice::from_raw_parts(frame, len)
                        .iter()
                        .all(|byte| *byte == 0)
                );
                free(frame);
            }
        }
        assert!(allocate(usize::MAX).is_none() && allocate(usize::MAX / 2).is_none());
    }
}
