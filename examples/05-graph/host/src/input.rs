//! Where the graph comes from. Each process makes or reads it by itself, and keeps its part.

use std::path::Path;

use example_servers::Failure;

use crate::rmat::Rmat;
use crate::snap::EdgeList;

/// The edges of a graph.
#[derive(Clone, Debug)]
pub enum Input {
    /// A random graph.
    Rmat(Rmat),
    /// An edge list.
    File(EdgeList),
}

impl Input {
    /// The edge list of a file; `rmat` without one.
    ///
    /// # Errors
    /// The file is no edge list.
    pub fn open(file: Option<&Path>, rmat: Rmat) -> Result<Self, Failure> {
        Ok(match file {
            Some(path) => Self::File(EdgeList::open(path)?),
            None => Self::Rmat(rmat),
        })
    }

    /// Number of vertices.
    #[must_use]
    pub fn vertices(&self) -> u32 {
        match self {
            Self::Rmat(rmat) => 1 << rmat.scale,
            Self::File(list) => list.vertices(),
        }
    }

    /// Calls `each` with every edge.
    ///
    /// # Errors
    /// The file cannot be read again.
    pub fn for_each_edge(&self, mut each: impl FnMut(u32, u32)) -> Result<(), Failure> {
        match self {
            Self::Rmat(rmat) => rmat.edges().for_each(|(from, to)| each(from, to)),
            Self::File(list) => list.for_each_edge(each)?,
        }
        Ok(())
    }

    /// What the input calls a vertex.
    #[must_use]
    pub fn id(&self, vertex: u32) -> u64 {
        match self {
            Self::Rmat(_) => vertex.into(),
            Self::File(list) => list.id(vertex),
        }
    }

    /// Which numbers vertices have, for messages.
    fn numbers(&self) -> String {
        match self {
            Self::Rmat(_) => format!("vertices are 0 to {}", self.vertices() - 1),
            Self::File(_) => "`--root` takes a number of the file".into(),
        }
    }

    /// The vertex that the input calls `id`.
    ///
    /// # Errors
    /// There is none.
    pub fn vertex(&self, id: u64) -> Result<u32, Failure> {
        let vertex = match self {
            Self::Rmat(_) => u32::try_from(id).ok().filter(|&vertex| vertex < self.vertices()),
            Self::File(list) => list.number(id),
        };
        vertex.ok_or_else(|| format!("the graph has no vertex {id}\nhelp: {}", self.numbers()).into())
    }
}
