//! What a server has and lends: its part of the graph.

use example_05_graph_ifuncs::{COLUMNS, Graph, Part};
use ifunc::Opaque;

use crate::rows::Rows;

/// A part of the graph, and columns for algorithms that the server does not know.
#[derive(Debug, Opaque)]
#[opaque(interfaces)]
pub struct Store {
    part: Part,
    rows: Rows,
    columns: [Vec<u64>; COLUMNS],
}

impl Store {
    /// A part with its rows. All columns are 0.
    #[must_use]
    pub fn new(part: Part, rows: Rows) -> Self {
        Self {
            part,
            columns: [(); COLUMNS].map(|()| vec![0; part.range().len()]),
            rows,
        }
    }
}

#[ifunc::export]
impl Graph for Store {
    fn part(&self) -> Part {
        self.part
    }

    fn offsets(&self) -> &[u64] {
        &self.rows.offsets
    }

    fn targets(&self) -> &[u32] {
        &self.rows.targets
    }

    fn column(&mut self, number: u32) -> &mut [u64] {
        let column = self.columns.get_mut(number as usize);
        column.map(Vec::as_mut_slice).unwrap_or_default()
    }
}
