//! UCX's configuration.

use std::ffi::CString;

use ucx_sys::{Status, UCS_ERR_INVALID_PARAM, Ucx, ucp_config_t};

use crate::library::Error;

/// The last version in which a transport's setting is named without the transport's prefix.
const NO_PREFIX: (u32, u32) = (1, 13);

/// UCX's configuration: what the environment says, and what was [set](Config::set) since.
#[derive(Debug)]
pub struct Config {
    ucx: &'static Ucx,
    raw: *mut ucp_config_t,
}

impl Config {
    pub(crate) fn read(ucx: &'static Ucx) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: without a prefix and a file UCX reads the environment; the result is written to `raw`.
        ucx.check(unsafe { ucx.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut raw) })
            .map_err(Error::doing("reading UCX's configuration"))?;
        Ok(Self { ucx, raw })
    }

    /// Sets what the environment variable `UCX_` `prefix` `name` would set. `prefix` is that of a transport, such as `TCP_`, or
    /// empty.
    ///
    /// # Errors
    /// This version of UCX does not know the setting, or does not take the value.
    pub fn set(&mut self, prefix: &str, name: &str, value: &str) -> Result<(), Status> {
        let version = self.ucx.version();
        let name = if (version.major, version.minor) <= NO_PREFIX {
            name.to_owned()
        } else {
            format!("{prefix}{name}")
        };
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
            return Err(self.ucx.status(UCS_ERR_INVALID_PARAM));
        };
        // SAFETY: the configuration is alive, and both texts end in a zero.
        let status = unsafe {
            self.ucx
                .ucp_config_modify(self.raw, name.as_ptr(), value.as_ptr())
        };
        self.ucx.check(status)
    }

    pub(crate) fn as_ptr(&self) -> *const ucp_config_t {
        self.raw
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read by `read`; this is its last use.
        unsafe { self.ucx.ucp_config_release(self.raw) };
    }
}
