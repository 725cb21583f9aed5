//! Compressed sparse rows: the neighbours of all vertices, one vertex after the other.

use std::ops::Range;

use example_servers::Failure;

use crate::input::Input;

/// The rows of consecutive vertices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Where in `targets` each row begins, and where the last one ends.
    pub offsets: Vec<u64>,
    /// The neighbours, ascending in each row.
    pub targets: Vec<u32>,
}

impl Rows {
    /// The rows of some vertices. Edges that are there twice count once, edges from a vertex to itself not at all.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn new(input: &Input, directed: bool, vertices: Range<u32>) -> Result<Self, Failure> {
        let mut edges = Vec::new();
        let mut add = |from: u32, to: u32| {
            if vertices.contains(&from) && from != to {
                edges.push((from, to));
            }
        };
        input.for_each_edge(|from, to| {
            add(from, to);
            if !directed {
                add(to, from);
            }
        })?;
        edges.sort_unstable();
        edges.dedup();
        let mut offsets = vec![0; vertices.len() + 1];
        for (from, _) in &edges {
            offsets[(from - vertices.start) as usize + 1] += 1;
        }
        for at in 1..offsets.len() {
            offsets[at] += offsets[at - 1];
        }
        let targets = edges.into_iter().map(|(_, to)| to).collect();
        Ok(Self { offsets, targets })
    }

    /// The neighbours of each vertex.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let rows = self.offsets.windows(2);
        rows.map(|row| &self.targets[row[0] as usize..row[1] as usize])
    }

    /// The neighbours of one.
    #[must_use]
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let at = vertex as usize;
        &self.targets[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    /// Appends the rows that follow.
    pub fn append(&mut self, next: Self) {
        let end = self.targets.len() as u64;
        self.offsets.pop();
        self.offsets
            .extend(next.offsets.into_iter().map(|offset| offset + end));
        self.targets.extend(next.targets);
    }
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            targets: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rmat::Rmat;

    #[test]
    fn parts_are_the_rows_of_the_whole() {
        let input = Input::Rmat(Rmat {
            scale: 8,
            edge_factor: 4,
            seed: 3,
        });
        for directed in [false, true] {
            let whole = Rows::new(&input, directed, 0..256).unwrap();
            let mut parts = Rows::default();
            for part in [0..100, 100..100, 100..256] {
                parts.append(Rows::new(&input, directed, part).unwrap());
            }
            assert_eq!(parts, whole);
            let is_symmetric = whole
                .iter()
                .zip(0..)
                .all(|(row, vertex)| row.iter().all(|&other| whole.neighbours(other).contains(&vertex)));
            assert_eq!(is_symmetric, !directed);
        }
    }
}
