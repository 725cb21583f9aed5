//! The ready-made ifuncs of `ifunc-ops`, by their images.

use ifunc_ops::{
    Bytes, Chase, CompareSwap, FetchAdd, Found, Patch, Place, Range, Scan, ScanBetween, Store, Table, Words,
};
use ifunc_ops::{chase, compare_swap, fetch_add, gather, gather_bytes, scan_between, scatter, scatter_bytes};
use ifunc_test::{Error, Fixture};

use crate::common;

/// What a target lends.
#[derive(ifunc::Opaque)]
#[opaque(interfaces)]
pub(crate) struct Memory(Vec<u64>, Vec<u8>);

#[ifunc::export]
impl Words for Memory {
    fn words(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

#[ifunc::export]
impl Bytes for Memory {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.1
    }
}

#[ifunc::export]
impl Table for Memory {
    fn part(&self) -> &[u64] {
        &self.0
    }

    fn place(&self, index: u64) -> Option<Place> {
        (index < 20_000).then_some(Place { index, node: 0 })
    }
}

fn fixture() -> (Fixture, Memory) {
    common::libraries();
    let words = (0..10_000).map(|n| (n * 7 + 1) % 10_000).collect();
    (Fixture::new().unwrap(), Memory(words, (0..=255).collect()))
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0;
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The message of an invocation that panicked.
#[track_caller]
fn failed<T: std::fmt::Debug>(result: Result<T, Error>, message: &str) {
    let text = result.expect_err("an error").to_string();
    assert!(text.contains(message), "{text}");
}

#[test]
fn words_are_read_and_changed() {
    let (mut fixture, mut memory) = fixture();
    let indices: Vec<u64> = (0..5000).map(|n| n * 1999 % 10_000).collect();
    let gathered = fixture.run_bytes::<gather>(&indices[..], &mut memory).unwrap();
    let expected: Vec<u64> = indices.iter().map(|&at| memory.0[at as usize]).collect();
    assert_eq!(words(&gathered), expected);

    let stores: Vec<Store> = indices
        .iter()
        .map(|&index| Store { index, value: !index })
        .collect();
    assert_eq!(fixture.run::<scatter>(&stores[..], &mut memory).unwrap(), 5000);
    assert!(indices.iter().all(|&at| memory.0[at as usize] == !at));

    let add = FetchAdd {
        index: 3,
        value: u64::MAX,
    };
    let before = memory.0[3];
    assert_eq!(fixture.run::<fetch_add>(add, &mut memory).unwrap(), before);
    assert_eq!(memory.0[3], before.wrapping_sub(1));
    for (expected, now) in [(0, before - 1), (before - 1, 42)] {
        let swap = CompareSwap {
            index: 3,
            expected,
            new: 42,
        };
        assert_eq!(
            fixture.run::<compare_swap>(swap, &mut memory).unwrap(),
            before - 1
        );
        assert_eq!(memory.0[3], now);
    }

    let beyond = "word 10000 is beyond the end of 10000 words";
    failed(fixture.run_bytes::<gather>(&[10_000][..], &mut memory), beyond);
    let old = memory.0.clone();
    let stores = [
        Store { index: 0, value: 1 },
        Store {
            index: 10_000,
            value: 1,
        },
    ];
    failed(fixture.run::<scatter>(&stores[..], &mut memory), beyond);
    assert_eq!(memory.0, old);
}

#[test]
fn answers_are_as_long_as_the_target_allows() {
    let (mut fixture, mut memory) = fixture();
    // More than an invocation is lent.
    let indices: Vec<u64> = (0..9000).rev().collect();
    let gathered = fixture.run_bytes::<gather>(&indices[..], &mut memory).unwrap();
    assert_eq!(gathered.len(), 72_000);
    assert_eq!(
        words(&gathered)[..3],
        memory.0[8997..9000].iter().rev().copied().collect::<Vec<_>>()
    );
    let all = Range { offset: 0, len: 256 };
    let gathered = fixture
        .run_bytes::<gather_bytes>(&[all; 257][..], &mut memory)
        .unwrap();
    assert_eq!(gathered, memory.1.repeat(257));
    // 64 MiB and one range.
    let ranges = vec![all; (64 << 20) / 256 + 1];
    let error = fixture
        .run_bytes::<gather_bytes>(&ranges[..], &mut memory)
        .unwrap_err()
        .to_string();
    assert!(error.contains("67109120 bytes"), "{error}");
}

#[test]
fn ranges_of_bytes_are_read_and_changed() {
    let (mut fixture, mut memory) = fixture();
    let patches = [
        Patch {
            offset: 250,
            bytes: b"ends",
        },
        Patch {
            offset: 0,
            bytes: b"begins",
        },
    ];
    assert_eq!(
        fixture.run::<scatter_bytes>(&patches[..], &mut memory).unwrap(),
        2
    );
    let ranges = [(0, 6), (6, 1), (250, 4), (256, 0)].map(|(offset, len)| Range { offset, len });
    let gathered = fixture
        .run_bytes::<gather_bytes>(&ranges[..], &mut memory)
        .unwrap();
    assert_eq!(gathered, b"begins\x06ends");
    let beyond = [Range {
        offset: u64::MAX,
        len: 2,
    }];
    failed(
        fixture.run_bytes::<gather_bytes>(&beyond[..], &mut memory),
        "beyond the end of 256 bytes",
    );
}

#[test]
fn a_scan_goes_on_where_its_answer_was_full() {
    let (mut fixture, mut memory) = fixture();
    let (mut found, mut range, mut answers) = (Vec::new(), Scan { from: 10, to: 9_990 }, Vec::new());
    loop {
        let between = ScanBetween {
            range,
            least: 100,
            most: 9_000,
        };
        let answer = fixture.run_bytes::<scan_between>(between, &mut memory).unwrap();
        let answer = Found::parse(&answer).unwrap();
        found.extend(answer.iter());
        answers.push(answer.iter().len());
        match answer.next {
            Some(next) => range.from = next,
            None => break,
        }
    }
    let expected: Vec<(u64, u64)> = (10..9_990)
        .map(|at| (at, memory.0[at as usize]))
        .filter(|(_, word)| (100..=9_000).contains(word))
        .collect();
    assert_eq!(found, expected);
    // 64 KiB hold 4095 of them, and less in a smaller ring.
    let full = answers[0];
    assert!(full == 4095 || std::env::var_os("IFUNC_RING").is_some(), "{full}");
    assert_eq!(answers.len(), expected.len().div_ceil(full));
    assert!(answers[..answers.len() - 1].iter().all(|&len| len == full));
}

#[test]
fn a_chase_follows_words() {
    let (mut fixture, mut memory) = fixture();
    for steps in [0, 1, 4096] {
        let expected = (0..steps).fold(5, |at: u64, _| memory.0[at as usize]);
        let end = fixture.run::<chase>(Chase { at: 5, steps }, &mut memory).unwrap();
        assert_eq!(end, expected);
    }
    memory.0[5] = 20_000;
    failed(
        fixture.run::<chase>(Chase { at: 5, steps: 2 }, &mut memory),
        "word 20000 is beyond the end of the table",
    );
    memory.0[5] = 15_000;
    failed(
        fixture.run::<chase>(Chase { at: 5, steps: 2 }, &mut memory),
        "beyond the end of node 0, which has 10000 words",
    );
}
