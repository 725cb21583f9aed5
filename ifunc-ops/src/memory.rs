//! The memory that a target lends: its data type exports one or more of these interfaces.

/// Words that ifuncs read and change.
#[ifunc::interface]
pub trait Words {
    /// All words.
    fn words(&mut self) -> &mut [u64];
}

/// Bytes that ifuncs read and change.
#[ifunc::interface]
pub trait Bytes {
    /// All bytes.
    fn bytes(&mut self) -> &mut [u8];
}

/// Where a word of a table lies.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The word's index on its node.
    pub index: u64,
    /// The number of the node.
    pub node: u64,
}

/// A table of words that is cut over the nodes of a group.
#[ifunc::interface]
pub trait Table {
    /// The words on this node.
    fn part(&self) -> &[u64];

    /// Where a word of the whole table lies; `None` beyond its end.
    fn place(&self, index: u64) -> Option<Place>;
}
