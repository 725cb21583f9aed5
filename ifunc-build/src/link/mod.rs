//! The static linker.

/// Why objects make no image.
#[derive(Debug, thiserror::Error)]
#[error("refused")]
pub struct LinkError;
