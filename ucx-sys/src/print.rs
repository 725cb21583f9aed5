//! What UCX prints of itself, as text.

use std::ffi::{CStr, c_char};

use libc::FILE;

use crate::{Ucx, ucp_context_h, ucp_ep_h};

/// What `print` writes to the stream that it is given; empty if there is no memory for a stream.
fn printed(print: impl FnOnce(*mut FILE)) -> String {
    let (mut text, mut len): (*mut c_char, usize) = (std::ptr::null_mut(), 0);
    // SAFETY: both are written until the stream is closed, below, before they go.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut len) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: the stream is open, and this function alone uses it; closing it leaves a string, which this function frees.
    unsafe {
        if libc::fclose(stream) != 0 || text.is_null() {
            libc::free(text.cast());
            return String::new();
        }
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        copy
    }
}

impl Ucx {
    /// What `ucp_context_print_info` prints: transports and devices.
    ///
    /// # Safety
    /// The context must be alive.
    #[must_use]
    pub unsafe fn context_info(&self, context: ucp_context_h) -> String {
        // SAFETY: the caller's promise; the stream is open.
        printed(|stream| unsafe { self.ucp_context_print_info(context, stream) })
    }

    /// What `ucp_ep_print_info` prints: the lanes of an endpoint, and what carries each.
    ///
    /// # Safety
    /// The endpoint must be alive, and no other thread may use its worker.
    #[must_use]
    pub unsafe fn endpoint_info(&self, ep: ucp_ep_h) -> String {
        // SAFETY: the caller's promise; the stream is open.
        printed(|stream| unsafe { self.ucp_ep_print_info(ep, stream) })
    }
}

/// The transports and devices, such as `tcp/lo`, of the lanes in a text of [`Ucx::endpoint_info`]; each once, in their order.
#[must_use]
pub fn lanes(endpoint_info: &str) -> Vec<String> {
    let mut lanes: Vec<String> = Vec::new();
    for line in endpoint_info.lines() {
        // `#                 lane[0]:  1:tcp/lo.0 md[1]      -> md[1]/tcp/sysdev[255] am am_bw#0`
        let Some((_, rest)) = line.split_once("lane[") else {
            continue;
        };
        let Some((_, rest)) = rest.split_once(':') else {
            continue;
        };
        let Some(resource) = rest.split_whitespace().next() else {
            continue;
        };
        let resource = resource.split_once(':').map_or(resource, |(_, name)| name);
        // The number behind the dot counts paths over one device.
        let name = resource.rsplit_once('.').map_or(resource, |(name, _)| name);
        // A connection manager is a lane, too, and carries nothing.
        if name.contains('/') && !lanes.iter().any(|lane| lane == name) {
            lanes.push(name.to_owned());
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_read_off_what_ucx_prints() {
        let text = "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n\
            #                 lane[0]:  3:posix/memory.0 md[2]  -> md[2]/posix/sysdev[255] am am_bw#0\n\
            #                 lane[1]:  1:tcp/eth0.100.0 md[1] -> md[1]/tcp/sysdev[255] keepalive\n\
            #                 lane[2]:  1:tcp/eth0.100.1 md[1] -> md[1]/tcp/sysdev[255] am_bw#1\n\
            #                 lane[3]: CM tcp\n";
        assert_eq!(lanes(text), ["posix/memory", "tcp/eth0.100"]);
    }
}
