//! What the attributes make of code: on hosts, in images, and when they are misused. One program, which is linked once.

mod host_side;
mod image;
mod ui;
