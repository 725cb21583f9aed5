//! The library itself.

use ucx_sys::{LoadError, Status, Ucx, Version};

use crate::config::Config;
use crate::context::{Context, Features};

/// UCX, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Library(pub(crate) &'static Ucx);

/// What UCX refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: UCX says: {status}")]
pub struct Error {
    /// What was being done.
    pub doing: &'static str,
    /// What UCX said.
    pub status: Status,
}

impl Error {
    /// For `map_err`.
    pub(crate) fn doing(doing: &'static str) -> impl FnOnce(Status) -> Self {
        move |status| Self { doing, status }
    }
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
        Config::read(self.0)
    }

    /// Initialises UCX.
    ///
    /// # Errors
    /// UCX finds no transport that the configuration allows, or no memory.
    pub fn context(self, config: &Config, features: Features) -> Result<Context, Error> {
        Context::new(self.0, config, features, false)
    }

    /// As [`context`](Self::context), for a worker whose raw handle several threads use
    /// ([`Multi`](crate::Multi)).
    ///
    /// # Errors
    /// As for `context`.
    pub fn context_for_threads(self, config: &Config, features: Features) -> Result<Context, Error> {
        Context::new(self.0, config, features, true)
    }
}
