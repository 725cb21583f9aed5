//! What UCX's headers have as macros and inline functions.

use std::ffi::c_void;

use crate::{
    UCP_API_MAJOR, UCP_API_MINOR, UCP_DATATYPE_CONTIG, UCP_DATATYPE_IOV, UCP_DATATYPE_SHIFT, UCS_ERR_LAST,
    UCS_INPROGRESS, Ucx, ucp_config_t, ucp_context_h, ucp_datatype_t, ucp_params_t, ucs_status_ptr_t,
    ucs_status_t,
};

/// `UCS_ERR_LAST` as a pointer has it: the statuses are the last values of the address space.
const LAST: usize = UCS_ERR_LAST as isize as usize;

/// Whether a status pointer is an error.
#[must_use]
#[inline]
#[allow(non_snake_case)]
pub fn UCS_PTR_IS_ERR(ptr: ucs_status_ptr_t) -> bool {
    ptr.addr() >= LAST
}

/// Whether a status pointer is a request, which is under way.
#[must_use]
#[inline]
#[allow(non_snake_case)]
pub fn UCS_PTR_IS_PTR(ptr: ucs_status_ptr_t) -> bool {
    ptr.addr().wrapping_sub(1) < LAST - 1
}

/// The status that a pointer is that is no request.
#[must_use]
#[inline]
#[allow(non_snake_case)]
pub fn UCS_PTR_RAW_STATUS(ptr: ucs_status_ptr_t) -> ucs_status_t {
    // Truncated as in C: the value is one of a status.
    ptr.addr() as ucs_status_t
}

/// The status of a status pointer: [`UCS_INPROGRESS`] for a request.
#[must_use]
#[inline]
#[allow(non_snake_case)]
pub fn UCS_PTR_STATUS(ptr: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(ptr) {
        UCS_INPROGRESS
    } else {
        UCS_PTR_RAW_STATUS(ptr)
    }
}

/// A status as a pointer.
#[must_use]
#[inline]
#[allow(non_snake_case)]
pub fn UCS_STATUS_PTR(status: ucs_status_t) -> ucs_status_ptr_t {
    std::ptr::without_provenance_mut::<c_void>(status as isize as usize)
}

/// Flag of `ucp_mem_map`: pages need not be there before they are used. (The headers have it in an enumeration without a name.)
pub const UCP_MEM_MAP_NONBLOCK: u32 = 1;
/// Flag of `ucp_mem_map`: the memory is to be allocated.
pub const UCP_MEM_MAP_ALLOCATE: u32 = 2;

/// The data type of consecutive elements of `size` bytes.
#[must_use]
#[inline]
pub const fn ucp_dt_make_contig(size: u64) -> ucp_datatype_t {
    size << UCP_DATATYPE_SHIFT | UCP_DATATYPE_CONTIG as u64
}

/// The data type of a list of [`ucp_dt_iov_t`](crate::ucp_dt_iov_t).
#[must_use]
#[inline]
pub const fn ucp_dt_make_iov() -> ucp_datatype_t {
    UCP_DATATYPE_IOV as u64
}

impl Ucx {
    /// `ucp_init`, which is an inline function of the headers: `ucp_init_version` with the version of these bindings.
    ///
    /// # Safety
    /// What UCX's manual asks of its callers.
    pub unsafe fn ucp_init(
        &self,
        params: *const ucp_params_t,
        config: *const ucp_config_t,
        context: *mut ucp_context_h,
    ) -> ucs_status_t {
        // SAFETY: passed on to the caller.
        unsafe { self.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{UCS_ERR_IO_ERROR, UCS_ERR_NO_MESSAGE, UCS_OK};

    #[test]
    fn statuses_travel_in_pointers() {
        let mut there = 0u8;
        let request: ucs_status_ptr_t = (&raw mut there).cast();
        assert!(UCS_PTR_IS_PTR(request) && !UCS_PTR_IS_ERR(request));
        assert_eq!(UCS_PTR_STATUS(request), UCS_INPROGRESS);
        for status in [UCS_ERR_NO_MESSAGE, UCS_ERR_IO_ERROR, UCS_ERR_LAST] {
            let ptr = UCS_STATUS_PTR(status);
            assert!(UCS_PTR_IS_ERR(ptr) && !UCS_PTR_IS_PTR(ptr));
            assert_eq!(UCS_PTR_STATUS(ptr), status);
        }
        let done = UCS_STATUS_PTR(UCS_OK);
        assert!(done.is_null() && !UCS_PTR_IS_ERR(done) && !UCS_PTR_IS_PTR(done));
        assert_eq!(UCS_PTR_STATUS(done), UCS_OK);
    }

    #[test]
    fn data_types_are_the_headers() {
        // `ucp_dt_make_contig(1)`, the usual one.
        assert_eq!(ucp_dt_make_contig(1), 8);
        assert_eq!(ucp_dt_make_iov(), 2);
    }
}
