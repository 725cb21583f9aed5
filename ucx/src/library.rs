//! The library, its configuration, and a context: UCX, initialised for the features that a program uses.

use std::ffi::CString;
use std::ops::BitOr;
use std::sync::Arc;

use ucx_sys::{
    LoadError, Status, UCP_FEATURE_AM, UCP_FEATURE_AMO64, UCP_FEATURE_RMA, UCP_FEATURE_TAG,
    UCP_FEATURE_WAKEUP, UCP_PARAM_FIELD_FEATURES, UCP_PARAM_FIELD_MT_WORKERS_SHARED, UCS_ERR_INVALID_PARAM,
    Ucx, Version, ucp_config_t, ucp_params_t,
};

use crate::handler::Handler;
use crate::shared::Shared;
use crate::worker::{Mode, Worker};

/// UCX, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Library(pub(crate) &'static Ucx);

/// An operation that UCX refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: UCX says: {status}")]
pub struct Error {
    /// What was being done.
    pub doing: &'static str,
    /// UCX's reason.
    pub status: Status,
}

/// An error for a status that is one.
pub(crate) fn check(ucx: &Ucx, status: i8, doing: &'static str) -> Result<(), Error> {
    ucx.check(status).map_err(|status| Error { doing, status })
}

impl Library {
    /// Loads UCX. The first success is kept; UCX is never unloaded.
    ///
    /// # Errors
    /// UCX is missing, too old, of another ABI, or incomplete.
    pub fn load() -> Result<Self, LoadError> {
        Ucx::load().map(Self)
    }

    /// The version of the library that was loaded.
    #[must_use]
    pub fn version(self) -> Version {
        self.0.version()
    }

    /// A status with UCX's words for it.
    #[must_use]
    pub fn status(self, code: i8) -> Status {
        self.0.status(code)
    }

    /// UCX's configuration, as the environment has it.
    ///
    /// # Errors
    /// A variable of UCX that UCX does not understand.
    pub fn config(self) -> Result<Config, Error> {
        let (ucx, mut raw) = (self.0, std::ptr::null_mut());
        // SAFETY: without a prefix and a file UCX reads the environment; the result is written to `raw`.
        let status = unsafe { ucx.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut raw) };
        check(ucx, status, "reading UCX's configuration")?;
        Ok(Config { ucx, raw })
    }

    /// Initialises UCX.
    ///
    /// # Errors
    /// UCX finds no transport that the configuration allows, or no memory.
    pub fn context(self, config: &Config, features: Features) -> Result<Context, Error> {
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED),
            features: features.0 & !Features::THREADS.0,
            mt_workers_shared: (features.0 & Features::THREADS.0 != 0).into(),
            ..ucp_params_t::default()
        };
        let (ucx, mut context) = (self.0, std::ptr::null_mut());
        // SAFETY: the parameters are as their mask says, the configuration is alive.
        let status = unsafe { ucx.ucp_init(&raw const params, config.raw, &raw mut context) };
        check(ucx, status, "initialising UCX")?;
        // SAFETY: made above, and owned by nothing else.
        let shared = unsafe { Shared::new(ucx, context, true) };
        Ok(Context {
            shared: Arc::new(shared),
            am_alignment: 0,
        })
    }
}

/// The last version in which a transport's setting is named without the transport's prefix.
const NO_PREFIX: (u32, u32) = (1, 13);

/// UCX's configuration: the environment's, changed by [`set`](Config::set).
#[derive(Debug)]
pub struct Config {
    ucx: &'static Ucx,
    raw: *mut ucp_config_t,
}

impl Config {
    /// Sets what the environment variable `UCX_` `prefix` `name` would set. `prefix` is that of a transport, such as `TCP_`, or
    /// empty.
    ///
    /// # Errors
    /// This version of UCX does not know the setting, or does not take the value.
    pub fn set(&mut self, prefix: &str, name: &str, value: &str) -> Result<(), Status> {
        let version = self.ucx.version();
        let has_prefix = (version.major, version.minor) > NO_PREFIX;
        let name = format!("{}{name}", if has_prefix { prefix } else { "" });
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
            return Err(self.ucx.status(UCS_ERR_INVALID_PARAM));
        };
        let (name, value) = (name.as_ptr(), value.as_ptr());
        // SAFETY: the configuration is alive, and both texts end in a zero.
        self.ucx
            .check(unsafe { self.ucx.ucp_config_modify(self.raw, name, value) })
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read by `Library::config`; this is its last use.
        unsafe { self.ucx.ucp_config_release(self.raw) };
    }
}

/// The uses of a context. UCX leaves out transports that cannot do them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Active messages.
    pub const AM: Self = Self(UCP_FEATURE_AM as u64);
    /// Messages that are matched by tag.
    pub const TAG: Self = Self(UCP_FEATURE_TAG as u64);
    /// Puts and gets.
    pub const RMA: Self = Self(UCP_FEATURE_RMA as u64);
    /// Atomic operations of 64 bits.
    pub const ATOMIC64: Self = Self(UCP_FEATURE_AMO64 as u64);
    /// Sleeping until something happens: [`Worker::event_fd`].
    pub const WAKEUP: Self = Self(UCP_FEATURE_WAKEUP as u64);
    /// A worker whose raw handle several threads use: [`Multi`](crate::Multi). No feature of UCX's has this bit.
    pub const THREADS: Self = Self(1 << 63);
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// UCX, initialised. It carries one worker, so that threads do not share it.
#[derive(Debug)]
pub struct Context {
    shared: Arc<Shared>,
    am_alignment: usize,
}

impl Context {
    /// The transports and devices that the context may use, such as `tcp/eth0`; each once, in UCX's order.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        // SAFETY: the context is alive.
        let text = unsafe { self.shared.ucx.context_info(self.shared.context()) };
        resources(&text)
    }

    /// Data of active messages that can be [kept](crate::Message::keep) begin at a multiple of this.
    #[must_use]
    pub fn am_alignment(mut self, align: usize) -> Self {
        self.am_alignment = align;
        self
    }

    /// A worker, whose callbacks call `handler`.
    ///
    /// # Errors
    /// UCX cannot open its transports, or has no memory.
    pub fn worker<H: Handler, M: Mode>(self, handler: H) -> Result<Worker<H, M>, Error> {
        Worker::new(self.shared, self.am_alignment, handler)
    }
}

/// The resources in a text that `ucp_context_print_info` printed.
fn resources(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        // `#      resource 3  :  md 1  dev 2  flags -- tcp/lo`
        if line.contains(" resource ")
            && let Some(resource) = line.split_whitespace().last()
            && resource.contains('/')
            && !found.iter().any(|known| known == resource)
        {
            found.push(resource.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_from_what_ucx_prints() {
        let text = "#    md 0  :  component 0  self \n\
                    #      resource 0  :  md 0  dev 0  flags -- self/memory\n\
                    #      resource 1  :  md 1  dev 1  flags -- tcp/lo\n\
                    #      resource 2  :  md 1  dev 1  flags -- tcp/lo\n";
        assert_eq!(resources(text), ["self/memory", "tcp/lo"]);
    }
}
