//! A real `ifuncd`, and real ifuncs that are sent to it.

mod capabilities;
mod config;
mod daemon;
mod metrics;
mod refusals;
mod running;
mod tls;
