//! A context: UCX, initialised with a configuration and the features that a program uses.

use std::ops::BitOr;
use std::sync::Arc;

use ucx_sys::{
    UCP_FEATURE_AM, UCP_FEATURE_AMO64, UCP_FEATURE_RMA, UCP_FEATURE_TAG, UCP_FEATURE_WAKEUP,
    UCP_PARAM_FIELD_FEATURES, UCP_PARAM_FIELD_MT_WORKERS_SHARED, Ucx, ucp_params_t,
};

use crate::config::Config;
use crate::handler::Handler;
use crate::library::Error;
use crate::shared::Shared;
use crate::worker::{Mode, Worker, WorkerOptions};

/// What a context is used for. UCX leaves out transports that cannot do it.
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
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// UCX, initialised. It carries one worker, so that threads do not share it.
#[derive(Debug)]
pub struct Context(Arc<Shared>);

impl Context {
    pub(crate) fn new(
        ucx: &'static Ucx,
        config: &Config,
        features: Features,
        used_by_threads: bool,
    ) -> Result<Self, Error> {
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED),
            features: features.0,
            mt_workers_shared: used_by_threads.into(),
            ..ucp_params_t::default()
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: the parameters are as their mask says, the configuration is alive.
        let status = unsafe { ucx.ucp_init(&raw const params, config.as_ptr(), &raw mut context) };
        ucx.check(status).map_err(Error::doing("initialising UCX"))?;
        // SAFETY: made above, and owned by nothing else.
        let shared = unsafe { Shared::new(ucx, context, true) };
        Ok(Self(Arc::new(shared)))
    }

    /// The transports and devices that the context may use, such as `tcp/eth0`; each once, in UCX's order.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        // SAFETY: the context is alive.
        let text = unsafe { self.0.ucx.context_info(self.0.context) };
        resources(&text)
    }

    /// A worker, whose callbacks call `handler`.
    ///
    /// # Errors
    /// UCX cannot open its transports, or has no memory.
    pub fn worker<H: Handler, M: Mode>(
        self,
        options: &WorkerOptions,
        handler: H,
    ) -> Result<Worker<H, M>, Error> {
        Worker::new(self.0, options, handler)
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
