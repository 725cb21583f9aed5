//! Random graphs in which few vertices have most of the edges, as in social networks: the recursive matrices of Chakrabarti,
//! Zhan and Faloutsos, with the probabilities of Graph500.

/// A graph of 2^scale vertices, each edge of which is a function of its number.
#[derive(Clone, Copy, Debug)]
pub struct Rmat {
    /// Bits of a vertex.
    pub scale: u32,
    /// Edges per vertex.
    pub edge_factor: u64,
    /// Another seed is another graph.
    pub seed: u64,
}

/// Of 2^16: the probabilities of the first three quarters of the matrix, added up.
const QUARTERS: [u64; 3] = [37_356, 49_807, 62_259];

impl Rmat {
    /// All edges. Some are there twice, some lead from a vertex to itself.
    pub fn edges(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.edge_factor << self.scale).map(move |number| self.edge(number))
    }

    fn edge(self, number: u64) -> (u32, u32) {
        let (mut from, mut to) = (0, 0);
        let mut random = 0;
        for level in 0..self.scale {
            // Four levels of a random number.
            random = match level % 4 {
                0 => hash(self.seed ^ hash(number << 5 | u64::from(level / 4))),
                _ => random >> 16,
            };
            let quarter = QUARTERS.iter().filter(|&&end| random & 0xffff >= end).count() as u32;
            from = from << 1 | quarter >> 1;
            to = to << 1 | quarter & 1;
        }
        (self.scramble(from), self.scramble(to))
    }

    /// A bijection, without which vertices of low numbers would have most edges, and the first server most work.
    fn scramble(self, vertex: u32) -> u32 {
        let mask = ((1_u64 << self.scale) - 1) as u32;
        let mix = |vertex: u32| vertex.wrapping_mul(0x9e37_79b1) & mask;
        let mixed = mix(vertex);
        mix(mixed ^ mixed >> self.scale.div_ceil(2))
    }
}

/// SplitMix64.
fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vertices_are_scrambled_and_few_have_most_edges() {
        let rmat = Rmat {
            scale: 10,
            edge_factor: 16,
            seed: 1,
        };
        let mut scrambled: Vec<u32> = (0..1 << 10).map(|vertex| rmat.scramble(vertex)).collect();
        scrambled.sort_unstable();
        assert!(scrambled.into_iter().eq(0..1 << 10));

        let mut degrees = [0_u32; 1 << 10];
        for (from, _) in rmat.edges() {
            degrees[from as usize] += 1;
        }
        let halves = degrees.chunks(512).map(|half| half.iter().sum::<u32>());
        assert!(
            halves.into_iter().all(|half| half > 4_000),
            "neither half has all"
        );
        degrees.sort_unstable();
        assert!(
            degrees[1014..].iter().sum::<u32>() > 2_000,
            "ten vertices of 1024 have an eighth"
        );
    }
}
