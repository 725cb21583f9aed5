//! What both sides of a connection do with frames, whatever carries them: put them in order, put bodies together.

pub(crate) mod assembly;
pub(crate) mod order;
