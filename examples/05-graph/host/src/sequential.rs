//! Both algorithms on a graph that is in one place.

use std::collections::VecDeque;

use example_05_graph_ifuncs::{ONE, UNREACHED, base, damped};

use crate::rows::Rows;

/// The number of steps from `root` to each vertex.
#[must_use]
pub fn levels(graph: &Rows, root: u32) -> Vec<u64> {
    let mut levels = vec![UNREACHED; graph.offsets.len() - 1];
    levels[root as usize] = 0;
    let mut queue = VecDeque::from([root]);
    while let Some(vertex) = queue.pop_front() {
        for &next in graph.neighbours(vertex) {
            if levels[next as usize] == UNREACHED {
                levels[next as usize] = levels[vertex as usize] + 1;
                queue.push_back(next);
            }
        }
    }
    levels
}

/// PageRank, in parts of [`ONE`].
#[must_use]
pub fn ranks(graph: &Rows, steps: u64) -> Vec<u64> {
    let vertices = graph.offsets.len() - 1;
    let mut ranks = vec![ONE / vertices as u64; vertices];
    for _ in 0..steps {
        let mut sums = vec![0; vertices];
        for (vertex, neighbours) in graph.iter().enumerate() {
            if neighbours.is_empty() {
                sums[vertex] += ranks[vertex];
            }
            for &neighbour in neighbours {
                sums[neighbour as usize] += ranks[vertex] / neighbours.len() as u64;
            }
        }
        let base = base(vertices as u32);
        ranks = sums.into_iter().map(|sum| base + damped(sum)).collect();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Input;
    use crate::rmat::Rmat;

    #[test]
    fn integers_are_as_good_as_floats() {
        let input = Input::Rmat(Rmat {
            scale: 9,
            edge_factor: 8,
            seed: 1,
        });
        let graph = Rows::new(&input, true, 0..512).unwrap();
        let mut expected = vec![1.0 / 512.0; 512];
        for _ in 0..30 {
            let mut next = vec![0.15 / 512.0; 512];
            for (vertex, neighbours) in graph.iter().enumerate() {
                if neighbours.is_empty() {
                    next[vertex] += 0.85 * expected[vertex];
                }
                for &neighbour in neighbours {
                    next[neighbour as usize] += 0.85 * expected[vertex] / neighbours.len() as f64;
                }
            }
            expected = next;
        }
        for (rank, expected) in ranks(&graph, 30).into_iter().zip(expected) {
            assert!((rank as f64 / ONE as f64 - expected).abs() < 1e-14);
        }
    }
}
