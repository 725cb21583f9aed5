//! The records of a server, in pages: an operation that scans reads them where they lie.

use ifunc_bench_ifuncs::kv::{Item, Record, Records};

use super::operation::{filled, first_amount};
use crate::kv::RECORDS;

/// Most items of a page, which has 8 KiB, as in many databases.
const PAGE: usize = (8 << 10) / size_of::<Item>();
/// Keys of a block, which has a cache line.
const BLOCK: usize = 8;

/// The records of a server that is not Redis: a B+ tree of two levels.
#[derive(Debug, ifunc::Opaque)]
#[opaque(interfaces)]
pub(super) struct Map {
    /// The key from which on each page has the items. The first is 0.
    first_keys: Vec<u64>,
    pages: Vec<Page>,
}

/// Items by key, in ascending order.
#[derive(Debug, Default)]
struct Page {
    /// Apart, so that a search reads few cache lines.
    keys: Vec<u64>,
    items: Vec<Item>,
}

impl Page {
    fn of(items: &[Item]) -> Self {
        Self {
            keys: items.iter().map(|item| item.key).collect(),
            items: items.to_vec(),
        }
    }

    /// The items whose keys are not less than `first`.
    #[inline]
    fn from(&self, first: u64) -> &[Item] {
        &self.items[self.position(first)..]
    }

    /// Where the key is, or would be. A binary search would wait for one cache line after another; this reads a key of each block at once,
    /// and then a block.
    #[inline]
    fn position(&self, key: u64) -> usize {
        let count = |keys: &[u64]| keys.iter().filter(|other| **other < key).count();
        let (blocks, rest) = self.keys.as_chunks::<BLOCK>();
        let before = blocks.iter().filter(|block| block[BLOCK - 1] < key).count();
        before * BLOCK + count(blocks.get(before).map_or(rest, |block| block))
    }

    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        let at = self.position(key);
        match self.keys.get(at) {
            Some(found) if *found == key => Ok(at),
            _ => Err(at),
        }
    }

    fn insert(&mut self, at: usize, item: Item) {
        self.keys.insert(at, item.key);
        self.items.insert(at, item);
    }

    /// Moves the second half to a page of its own.
    fn split(&mut self) -> Self {
        let at = self.keys.len() / 2;
        Self {
            keys: self.keys.split_off(at),
            items: self.items.split_off(at),
        }
    }
}

impl Map {
    /// With all records.
    pub(super) fn new() -> Self {
        let item = |key| Item {
            key,
            record: filled(first_amount(key), key),
        };
        Self::of(&(0..RECORDS).map(item).collect::<Vec<_>>())
    }

    /// Of items by key, in ascending order.
    fn of(items: &[Item]) -> Self {
        let mut pages: Vec<Page> = items.chunks(PAGE).map(Page::of).collect();
        if pages.is_empty() {
            pages.push(Page::default());
        }
        let others = pages[1..].iter().map(|page| page.keys[0]);
        Self {
            first_keys: std::iter::once(0).chain(others).collect(),
            pages,
        }
    }

    /// The number of the page that has the key, if one has.
    #[inline]
    fn page_of(&self, key: u64) -> usize {
        self.first_keys.partition_point(|first| *first <= key) - 1
    }

    /// The records of a range.
    #[cfg(feature = "wasm")]
    pub(super) fn range(&self, keys: std::ops::Range<u64>) -> impl Iterator<Item = &Record> {
        let at = self.page_of(keys.start);
        let further = self.pages[at + 1..].iter().flat_map(|page| &page.items);
        let items = self.pages[at].from(keys.start).iter().chain(further);
        items
            .take_while(move |item| item.key < keys.end)
            .map(|item| &item.record)
    }
}

#[ifunc::export]
impl Records for Map {
    fn get(&self, key: u64) -> Option<Record> {
        let page = &self.pages[self.page_of(key)];
        let at = page.find(key).ok()?;
        Some(page.items[at].record)
    }

    fn put(&mut self, key: u64, record: &Record) {
        let number = self.page_of(key);
        let page = &mut self.pages[number];
        let record = *record;
        match page.find(key) {
            Ok(at) => page.items[at].record = record,
            Err(at) => {
                page.insert(at, Item { key, record });
                if page.keys.len() > PAGE {
                    let second = page.split();
                    self.first_keys.insert(number + 1, second.keys[0]);
                    self.pages.insert(number + 1, second);
                }
            }
        }
    }

    fn page(&self, first: u64) -> &[Item] {
        let at = self.page_of(first);
        let mut pages = self.pages[at..].iter().map(|page| page.from(first));
        pages.find(|items| !items.is_empty()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn record(amount: u64) -> Record {
        filled(amount, amount)
    }

    /// All items from a key on, page after page.
    fn from(map: &Map, mut first: u64) -> Vec<(u64, Record)> {
        let mut all = Vec::new();
        while let Some(last) = map.page(first).last() {
            let page = map.page(first);
            assert!(page.len() <= PAGE);
            all.extend(page.iter().map(|item| (item.key, item.record)));
            let Some(next) = last.key.checked_add(1) else {
                break;
            };
            first = next;
        }
        all
    }

    #[test]
    fn it_has_what_was_put_in_the_order_of_the_keys() {
        let (mut map, mut expected) = (Map::of(&[]), BTreeMap::new());
        assert!(map.page(0).is_empty() && map.get(0).is_none());
        for n in 0..10 * PAGE as u64 {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            map.put(key, &record(n));
            expected.insert(key, record(n));
        }
        for key in [0, 1, u64::MAX] {
            map.put(key, &record(key));
            expected.insert(key, record(key));
        }
        for key in expected.keys().copied().collect::<Vec<_>>() {
            assert_eq!(map.get(key), expected.get(&key).copied());
            for near in [key.saturating_sub(1), key, key.saturating_add(1)] {
                let items: Vec<_> = expected
                    .range(near..)
                    .map(|(key, record)| (*key, *record))
                    .collect();
                assert_eq!(from(&map, near), items);
            }
        }
    }

    #[test]
    fn a_record_is_replaced() {
        let mut map = Map::new();
        assert_eq!(map.get(7), Some(filled(first_amount(7), 7)));
        map.put(7, &record(1));
        assert_eq!((map.get(7), map.get(RECORDS)), (Some(record(1)), None));
        assert_eq!(from(&map, 0).len() as u64, RECORDS);
    }
}
