//! The command, as a user starts it. One program, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod build;
mod call;
mod check;
mod cli;
mod cpu;
mod doctor;
mod expand;
mod help;
mod options;
mod run;
mod slices;
mod top;
