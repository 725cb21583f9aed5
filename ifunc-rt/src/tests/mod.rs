//! The runtime against itself, with images made by hand: what needs neither the builder nor a second process.

mod departures;
mod hostile_frames;
mod hostile_images;
pub(crate) mod images;
mod logs;
mod running;
mod sessions;
