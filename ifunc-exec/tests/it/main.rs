//! The executor with runner processes, as its users see both.

mod images;
mod runner;
