//! Drawing mutants.

/// Draws `count` of the items, each with the same probability, by a seed. They keep their order.
pub(crate) fn draw<T>(items: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut left = items.len() as u64;
    let mut wanted = count as u64;
    let mut drawn = Vec::new();
    for item in items {
        // Selection sampling (Knuth, 3.4.2 S): the item is one of the `wanted` among the `left`.
        if next(&mut state) % left < wanted {
            drawn.push(item);
            wanted -= 1;
        }
        left -= 1;
    }
    drawn
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn a_sample_has_its_size_and_is_repeated_by_its_seed() {
        let items = || (0..1000).collect::<Vec<u32>>();
        let first = draw(items(), 100, 1);
        assert_eq!(first.len(), 100);
        assert!(first.is_sorted());
        assert_eq!(draw(items(), 100, 1), first);
        assert_ne!(draw(items(), 100, 2), first);
        assert_eq!(draw(items(), 2000, 1), items());
    }

    #[test]
    fn each_item_is_drawn_as_often() {
        let mut drawn = [0; 10];
        for seed in 0..10_000 {
            for item in draw((0..10).collect::<Vec<usize>>(), 3, seed) {
                drawn[item] += 1;
            }
        }
        // 3,000 of each are expected; the standard deviation is 46.
        assert!(
            drawn.iter().all(|&count| (2_770..3_230).contains(&count)),
            "{drawn:?}"
        );
    }
}
