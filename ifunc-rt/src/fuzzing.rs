//! What the fuzz targets reach of this crate, which its users do not: only built with `--cfg fuzzing`, which libFuzzer's builds set.

pub use crate::transport::fuzzing::handshakes;
#[cfg(feature = "tls")]
pub use crate::transport::fuzzing::{greeting, stream};
