//! The runtime against itself, with images made by hand: what needs neither the builder nor a second process.

mod departures;
#[cfg(not(loom))]
mod futures;
mod hostile_frames;
mod hostile_images;
mod images;
mod running;
mod serving;
mod sessions;
mod threads;
