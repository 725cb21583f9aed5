//! The subcommands, one file each.

pub(crate) mod build;
pub(crate) mod inspect;
pub(crate) mod new;
pub(crate) mod run;
