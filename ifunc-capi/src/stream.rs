//! Streams: answers in parts.

use std::ffi::c_void;

use ifunc_rt::Stream;

use crate::guard::enter;
use crate::status::ifunc_status;

/// An answer that comes in parts. One thread at a time may use it.
pub struct ifunc_stream {
    stream: Stream<Vec<u8>>,
    /// The part that the caller has.
    part: Vec<u8>,
}

impl ifunc_stream {
    pub(crate) fn new(stream: Stream<Vec<u8>>) -> Self {
        Self {
            stream,
            part: Vec::new(),
        }
    }
}

/// Waits for the next part, at most the timeout of the handle. IFUNC_STATUS_END: there are no more. `part` receives its address, valid
/// until the next call of this function and until the stream is destroyed, and null without a part; `len` its length. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stream_next(
    stream: *mut ifunc_stream,
    part: *mut *const c_void,
    len: *mut usize,
) -> ifunc_status {
    enter(|| {
        let (part, len) = (object_mut!(part), object_mut!(len));
        (*part, *len) = (std::ptr::null(), 0);
        let stream = object_mut!(stream);
        match stream.stream.next().transpose()? {
            None => Ok(ifunc_status::End),
            Some(next) => {
                stream.part = next;
                (*part, *len) = (stream.part.as_ptr().cast(), stream.part.len());
                Ok(ifunc_status::Ok)
            }
        }
    })
}

/// Frees a stream, and cancels its call if it has not ended. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_stream_destroy(stream: *mut ifunc_stream) {
    destroy!(stream);
}
