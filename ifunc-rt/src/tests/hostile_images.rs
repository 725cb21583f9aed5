//! Images whose header and tables were changed and whose id was sealed again: the hash does not help, the parser and the
//! loader have to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use ifunc_abi::image::{Image, ImageFlags, RawEntry, RawHeader, Stage};
use ifunc_exec::{DebugInfo, Executor, HostSymbols, ImageExecutor, ImageExecutorOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::machine::IMAGE_MEMORY;
use super::{images, tell};

/// Words of the header and of an entry.
const FIELDS: usize = (size_of::<RawHeader>() + size_of::<RawEntry>()) / 4;

#[derive(Clone, Debug)]
enum Mutation {
    /// A bit anywhere in front of the code.
    Flip(usize),
    /// Four bytes at a multiple of two in front of the code.
    Word(usize, u32),
    /// A field of the header or of the first entry, nudged.
    Nudge(usize, i32),
    /// Bytes cut off or added, and the stated length made to fit.
    Resize(isize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let interesting = prop_oneof![
        Just(0),
        Just(1),
        Just(8),
        Just(4096),
        Just(65536),
        Just(i32::MAX as u32),
        Just(u32::MAX - 7),
        Just(u32::MAX),
        any::<u32>()
    ];
    prop_oneof![
        any::<usize>().prop_map(Mutation::Flip),
        (any::<usize>(), interesting).prop_map(|(at, value)| Mutation::Word(at, value)),
        (0..FIELDS, -9..9i32).prop_map(|(field, by)| Mutation::Nudge(field, by)),
        (-64..64isize).prop_map(Mutation::Resize),
    ]
}

fn mutate(bytes: &mut Vec<u8>, tables: usize, mutation: &Mutation) {
    let tables = tables.min(bytes.len());
    if tables < FIELDS * 4 {
        return;
    }
    match *mutation {
        Mutation::Flip(bit) => bytes[bit / 8 % tables] ^= 1 << (bit % 8),
        Mutation::Word(at, value) => {
            let at = at % (tables / 2 - 1) * 2;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        Mutation::Nudge(field, by) => {
            let at = field * 4;
            let old = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            bytes[at..at + 4].copy_from_slice(&old.wrapping_add_signed(by).to_le_bytes());
        }
        Mutation::Resize(by) => {
            bytes.resize(bytes.len().saturating_add_signed(by).max(16), 0);
            let len = bytes.len() as u32;
            bytes[12..16].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// With space for one image: each installation evicts the image before, unless that is pinned.
fn new_executor() -> ImageExecutor {
    let options = ImageExecutorOptions {
        code_bytes: 1 << 20,
        max_images: 1,
        max_image_memory: IMAGE_MEMORY,
        stack_bytes: 1 << 20,
        debug: DebugInfo::default(),
        library_folders: Vec::new,
        contain: ifunc_exec::ContainOptions::default(),
        answers: None,
        runners: None,
    };
    ImageExecutor::new(options, HostSymbols::new().unwrap(), Arc::new(())).unwrap()
}

#[test]
fn mutated_images_are_refused_or_installed_whole() {
    let seeds: Vec<Vec<u8>> = [
        images::everything(),
        images::counts(),
        images::panics(),
        images::add(),
        images::several(),
    ]
    .iter()
    .map(|parts| parts.encode().unwrap())
    .collect();
    let tables = |bytes: &[u8]| {
        let image = Image::parse(bytes).unwrap();
        bytes.len() - image.rx().len() - image.rw().len()
    };
    let mut stages = BTreeMap::<Stage, u64>::new();
    let mut outcomes = BTreeMap::<String, u64>::new();
    let state = RefCell::new((new_executor(), &mut stages, &mut outcomes));
    let config = Config {
        cases: 10_000,
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = (0..seeds.len(), proptest::collection::vec(mutation(), 1..4));
    TestRunner::new(config)
        .run(&strategy, |(seed, mutations)| {
            let mut bytes = seeds[seed].clone();
            for mutation in &mutations {
                mutate(&mut bytes, tables(&seeds[seed]), mutation);
            }
            let (executor, stages, outcomes) = &mut *state.borrow_mut();
            let stage = Image::parse(&bytes).map_or_else(|error| error.stage(), |_| Stage::Done);
            *stages.entry(stage).or_default() += 1;
            let id = *blake3::hash(&bytes).as_bytes();
            let result = executor
                .validate(&id, &bytes)
                .and_then(|valid| executor.install(&valid, None));
            let outcome = match result {
                Err(refusal) => refusal.reason.to_string(),
                Ok(installed) => {
                    assert!(installed.footprint() <= 2 * IMAGE_MEMORY);
                    assert_eq!(installed.original().unwrap()[..], bytes[..]);
                    if installed.flags.contains(ImageFlags::PINNED) {
                        *executor = new_executor();
                    }
                    "installed".to_owned()
                }
            };
            *outcomes.entry(outcome).or_default() += 1;
            Ok(())
        })
        .unwrap();
    let mut tally = String::from("hostile images, by the stage they reached:\n");
    for (stage, count) in &stages {
        tally += &format!("{count:>6}  reached {stage:?}\n");
    }
    for (outcome, count) in &outcomes {
        tally += &format!("{count:>6}  {outcome}\n");
    }
    tell(&tally);
    assert_eq!(stages.values().sum::<u64>(), 10_000);
    for stage in [
        Stage::Header,
        Stage::Layout,
        Stage::Tables,
        Stage::Relocations,
        Stage::Done,
    ] {
        assert!(stages.contains_key(&stage), "no case reached {stage:?}");
    }
    assert!(outcomes.contains_key("installed"));
}
