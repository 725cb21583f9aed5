//! placeholder: the SDK's front page.
#![no_std]

#[cfg(not(ifunc_image))]
pub mod host;
pub mod payload;

pub use ifunc_abi as abi;
