//! What an invocation sends to a node, and on what terms it runs there if that is this node.

use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_proto::caller::Image as _;
use ifunc_proto::node::Sendable;

use super::companions::Companions;
use crate::policy::Limited;
use crate::source::library::Library;

/// On what terms an invocation runs. What it sends inherits them.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Whose quotas each invocation counts against; `None`: nothing limits them.
    pub(crate) limited: Option<Limited>,
    /// What accompanies the image when it is sent on.
    pub(crate) companions: Option<Arc<Companions>>,
}

impl Terms {
    /// `None`: there are none.
    pub(crate) fn new(limited: Option<Limited>, companions: Option<Arc<Companions>>) -> Option<Arc<Self>> {
        (limited.is_some() || companions.is_some()).then(|| Arc::new(Self { limited, companions }))
    }
}

/// An entry of an installed image that an invocation sends.
#[derive(Debug)]
pub(crate) struct SentEntry {
    /// Without companions.
    pub(crate) library: Arc<Library>,
    /// Those of the invocation. The companions stay in memory until this has left.
    pub(crate) terms: Option<Arc<Terms>>,
}

impl SentEntry {
    fn companions(&self) -> Option<&Arc<Companions>> {
        self.terms.as_ref()?.companions.as_ref()
    }
}

impl Sendable for SentEntry {
    type Image = Arc<Library>;

    #[inline]
    fn key(&self) -> (&ImageId, u8) {
        let id = self
            .companions()
            .map_or(self.library.id(), |companions| companions.id());
        (id, self.library.entry())
    }

    fn image(&self) -> Arc<Library> {
        match self.companions() {
            Some(companions) => Arc::new(self.library.accompanied_by(companions)),
            None => Arc::clone(&self.library),
        }
    }
}
