//! The subcommands, one file each.

pub(crate) mod build;
pub(crate) mod call;
pub(crate) mod certify;
pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod doctor;
pub(crate) mod expand;
pub(crate) mod inspect;
pub(crate) mod keygen;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod run;
pub(crate) mod sign;
pub(crate) mod test;
pub(crate) mod top;
pub(crate) mod verify;
