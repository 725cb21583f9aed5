//! Small graphs for unit tests.

use alloc::vec;
use alloc::vec::Vec;

use crate::{COLUMNS, Graph, Part};

/// A part in the memory of the test.
pub(crate) struct Memory {
    part: Part,
    offsets: Vec<u64>,
    targets: Vec<u32>,
    columns: [Vec<u64>; COLUMNS],
}

impl Graph for Memory {
    fn part(&self) -> Part {
        self.part
    }

    fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    fn targets(&self) -> &[u32] {
        &self.targets
    }

    fn column(&mut self, number: u32) -> &mut [u64] {
        &mut self.columns[number as usize]
    }
}

fn cut(vertices: u32, servers: u32, neighbours: impl Fn(u32) -> Vec<u32>) -> Vec<Memory> {
    let memory = |server| {
        let part = Part::new(vertices, servers, server);
        let rows: Vec<_> = part.range().map(&neighbours).collect();
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        });
        Memory {
            part,
            offsets: [0].into_iter().chain(ends).collect(),
            targets: rows.concat(),
            columns: [(); COLUMNS].map(|()| vec![0; rows.len()]),
        }
    };
    (0..servers).map(memory).collect()
}

/// Each vertex has two neighbours: the one before and the one after.
pub(crate) fn ring(vertices: u32, servers: u32) -> Vec<Memory> {
    cut(vertices, servers, |vertex| {
        vec![(vertex + vertices - 1) % vertices, (vertex + 1) % vertices]
    })
}

/// All other vertices are neighbours of vertex 0.
pub(crate) fn star<const SERVERS: usize>(vertices: u32, servers: u32) -> [Memory; SERVERS] {
    let parts = cut(vertices, servers, |vertex| match vertex {
        0 => (1..vertices).collect(),
        _ => vec![0],
    });
    parts.try_into().ok().expect("as many parts")
}
