//! The collections of `alloc`, and shared ownership.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, LinkedList, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::cmp::Reverse;

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;

/// Vectors: grown, drained, spliced, shrunk.
#[ifunc]
pub fn vectors(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut numbers: Vec<u64> = Vec::new();
    for word in words(input) {
        match word % 5 {
            0 => numbers.insert(numbers.len() / 2, word),
            1 => drop(numbers.pop()),
            2 => numbers.extend([word, world.seed, 3]),
            3 if !numbers.is_empty() => drop(numbers.swap_remove(word as usize % numbers.len())),
            _ => numbers.push(word),
        }
    }
    out.put(numbers.len());
    let third = numbers.len() / 3;
    let drained: Vec<u64> = numbers.drain(third..third * 2).collect();
    out.put(drained.iter().copied().fold(0, u64::wrapping_add));
    let _: Vec<_> = numbers.splice(0..numbers.len().min(2), [7, 8, 9]).collect();
    numbers.truncate(500);
    numbers.shrink_to_fit();
    out.put(numbers.capacity() >= numbers.len());
    let tail = numbers.split_off(numbers.len() / 2);
    out.put(tail);
    let boxed: Box<[u64]> = numbers.into_boxed_slice();
    out.put(&*boxed);
    let nested: Vec<Vec<String>> = text(input)
        .lines()
        .take(20)
        .map(|line| line.split(' ').map(String::from).collect())
        .collect();
    out.put(nested);
    out.truncate(60_000);
    out
}

/// Ordered maps and sets.
#[ifunc]
pub fn btrees(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        *counts.entry(word).or_insert(world.seed % 3) += 1;
    }
    out.put(counts.len());
    for (word, count) in counts.iter().take(100) {
        out.put(*word);
        out.put(*count);
    }
    out.put(counts.range("m".."t").map(|(_, count)| *count).sum::<u64>());
    let mut numbers: BTreeMap<u64, u64> = words(input).map(|word| (word, word ^ world.seed)).collect();
    numbers.retain(|key, _| key % 3 != 0);
    let upper = numbers.split_off(&(1 << 63));
    out.put(numbers.len() * 100_000 + upper.len());
    out.put(upper.first_key_value().map(|(key, value)| (*key, *value)));
    while let Some((key, _)) = numbers.pop_last() {
        world.calls = world.calls.wrapping_mul(31).wrapping_add(key);
    }
    let (a, b): (BTreeSet<u8>, BTreeSet<u8>) = (input.iter().copied().collect(), (50..120).collect());
    out.put(a.intersection(&b).copied().collect::<Vec<u8>>());
    out.put(a.symmetric_difference(&b).count());
    out
}

/// Queues, heaps, lists.
#[ifunc]
pub fn queues(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut queue = VecDeque::new();
    let mut heap = BinaryHeap::new();
    let mut list = LinkedList::new();
    for word in words(input).take(1000) {
        match word % 4 {
            0 => queue.push_front(word),
            1 => queue.push_back(word),
            2 => drop(queue.pop_front()),
            _ => queue.rotate_left(queue.len() / 2),
        }
        heap.push(Reverse((word % 1000, word)));
        list.push_back(word as u32);
    }
    out.put(queue.make_contiguous() as &[u64]);
    while let Some(Reverse((key, word))) = heap.pop() {
        out.put((key as u16, word));
    }
    let mut tail = list.split_off(list.len() / 2);
    tail.append(&mut list);
    out.put(
        tail.into_iter()
            .fold(0_u64, |sum, n| sum.wrapping_mul(3).wrapping_add(n.into())),
    );
    out.truncate(60_000);
    out
}

struct Parent {
    name: String,
    children: RefCell<Vec<Rc<Child>>>,
}

struct Child {
    number: Cell<u64>,
    parent: Weak<Parent>,
}

/// Shared ownership, with cycles, cells and lazily computed values.
#[ifunc]
pub fn shared_ownership(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let parent = Rc::new(Parent {
        name: text(input).chars().take(20).collect(),
        children: RefCell::default(),
    });
    for word in words(input).take(50) {
        parent.children.borrow_mut().push(Rc::new(Child {
            number: Cell::new(word),
            parent: Rc::downgrade(&parent),
        }));
    }
    for child in &*parent.children.borrow() {
        child.number.set(child.number.get().rotate_left(3));
        out.put(child.parent.upgrade().map_or(0, |parent| parent.name.len()));
        out.put(child.number.get());
    }
    out.put(Rc::strong_count(&parent) + 10 * Rc::weak_count(&parent));
    let orphan = parent.children.borrow().first().cloned();
    drop(parent);
    out.put(orphan.map(|child| child.parent.upgrade().is_none()));
    let shared: Arc<[u8]> = Arc::from(&input[..input.len().min(9)]);
    let other = Arc::clone(&shared);
    out.put(other.iter().rev().copied().collect::<Vec<u8>>());
    let once = OnceCell::new();
    out.put(*once.get_or_init(|| shared.len()));
    let cow: Cow<'_, [u8]> = if input.len() % 2 == 0 {
        Cow::Borrowed(&shared)
    } else {
        Cow::Owned(shared.to_vec())
    };
    out.put(matches!(cow, Cow::Owned(_)));
    out
}

corpus_case::cases! {
    vectors: "Vec, Box<[T]>";
    btrees: "BTreeMap, BTreeSet";
    queues: "VecDeque, BinaryHeap, LinkedList";
    shared_ownership: "Rc, Weak, Arc, Cell, RefCell, OnceCell, Cow";
}
