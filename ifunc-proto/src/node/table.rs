//! A bounded table whose entries are named by an index and a nonce.

/// Pseudo-random numbers that are not 0: SplitMix64.
#[derive(Debug)]
pub(super) struct Nonces(u64);

impl Nonces {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ n >> 31).max(1)
    }
}

/// The table. A nonce tells an entry from earlier ones at the same index.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds an entry. Returns its index.
    pub(super) fn insert(&mut self, nonce: u64, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some((nonce, value));
                index
            }
            None => {
                self.entries.push(Some((nonce, value)));
                (self.entries.len() - 1) as u32
            }
        }
    }

    pub(super) fn get_mut(&mut self, index: u32, nonce: u64) -> Option<&mut T> {
        match self.entries.get_mut(index as usize)? {
            Some((own, value)) if *own == nonce => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, index: u32, nonce: u64) -> Option<T> {
        self.get_mut(index, nonce)?;
        self.free.push(index);
        self.entries[index as usize].take().map(|(_, value)| value)
    }

    /// Index, nonce and value of each entry.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, u64, &mut T)> {
        let entries = self.entries.iter_mut().enumerate();
        entries.filter_map(|(index, entry)| {
            let (nonce, value) = entry.as_mut()?;
            Some((index as u32, *nonce, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_those_of_splitmix64() {
        let mut nonces = Nonces::new(0);
        let numbers = [0, 1, 2].map(|_| nonces.next());
        // The first numbers of the reference implementation with the seed 0.
        let expected = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn an_entry_is_found_by_its_own_nonce_only() {
        let mut table = Table::new();
        let mut nonces = Nonces::new(7);
        let (first, second) = (nonces.next(), nonces.next());
        assert_ne!(first, second);
        let index = table.insert(first, 'a');
        assert_eq!(table.get_mut(index, second), None);
        assert_eq!(table.remove(index, first), Some('a'));
        assert_eq!(table.remove(index, first), None);
        assert_eq!(table.insert(second, 'b'), index, "the index is used again");
        assert_eq!(table.get_mut(index, first), None);
        assert_eq!(table.get_mut(index, second), Some(&mut 'b'));
        assert_eq!(table.get_mut(100, second), None);
        assert_eq!((table.len(), table.iter_mut().count()), (1, 1));
    }
}
