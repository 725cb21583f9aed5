//! How a connection ends.

use crate::link::LinkError;

/// Why a connection is over. Every frame that arrived before was processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The peer closed the link or died.
    #[error("the peer closed the connection or died")]
    Left,
    /// The peer violated the protocol.
    #[error("the peer broke the protocol: {0}")]
    Broke(String),
}

impl Closed {
    /// Boxed: an error that nearly never occurs returns in a register past what happens for every frame.
    #[cold]
    pub(crate) fn broke(why: impl ToString) -> Box<Self> {
        Box::new(Self::Broke(why.to_string()))
    }
}

impl From<LinkError> for Box<Closed> {
    #[cold]
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed => Box::new(Closed::Left),
            LinkError::Malformed(why) => Closed::broke(why),
        }
    }
}
