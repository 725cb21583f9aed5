//! Following a chain of indices through a table that is cut over several nodes.

use ifunc::Onward;
use ifunc::prelude::*;

use crate::Table;

/// The payload of [`chase`](fn@chase).
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chase {
    /// Index of the word to begin at, in the whole table.
    pub at: u64,
    /// Number of steps.
    pub steps: u64,
}

/// Reads the word at an index, then the word at the index that this word is, and so on. Where the next word lies on another node,
/// the chase goes on there. Answers the last word that it read.
///
/// On a target that is no node of a group, all words must lie on node 0.
#[ifunc]
pub fn chase(mut chase: Chase, table: &mut dyn Table, ctx: &mut Context) -> Onward<u64> {
    let here = u64::from(ctx.node().unwrap_or_default());
    while chase.steps > 0 {
        let Some(place) = table.place(chase.at) else {
            panic!("word {} is beyond the end of the table", chase.at);
        };
        if place.node != here {
            let node = u32::try_from(place.node).unwrap_or(u32::MAX);
            return match ctx.forward::<self::chase>(node, &chase) {
                Ok(()) => Onward::Forwarded,
                Err(why) => panic!("cannot go on to node {node}: {why}"),
            };
        }
        let part = table.part();
        let Some(&word) = usize::try_from(place.index).ok().and_then(|at| part.get(at)) else {
            panic!(
                "word {} is beyond the end of node {here}, which has {} words",
                place.index,
                part.len()
            );
        };
        chase.at = word;
        chase.steps -= 1;
    }
    Onward::Answer(chase.at)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::Place;

    struct Ring(Vec<u64>);

    impl Table for Ring {
        fn part(&self) -> &[u64] {
            &self.0
        }

        fn place(&self, index: u64) -> Option<Place> {
            (index < 10).then_some(Place {
                index,
                node: index / 8,
            })
        }
    }

    fn run(at: u64, steps: u64) -> Onward<u64> {
        let mut ring = Ring([3, 7, 9, 1, 5, 4, 6, 0].into());
        chase(Chase { at, steps }, &mut ring, &mut Context::detached())
    }

    #[test]
    fn words_are_followed() {
        for (steps, end) in [0, 3, 1, 7, 0, 3].into_iter().enumerate() {
            assert_eq!(run(0, steps as u64), Onward::Answer(end));
        }
        assert_eq!(run(4, 4096), Onward::Answer(4));
    }

    #[test]
    #[should_panic = "cannot go on to node 1"]
    fn another_node_needs_a_group() {
        run(2, 2);
    }

    #[test]
    #[should_panic = "word 10 is beyond the end of the table"]
    fn the_table_ends() {
        run(10, 1);
    }
}
