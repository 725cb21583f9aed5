//! Images and changes in any order, compared with a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use ifunc_abi::image::ImportFlags;
use ifunc_abi::status::{Rejection, Status};
use proptest::prelude::*;

use super::{finds, run, variable};
use crate::tests::{executor, install};
use crate::{Executor, InstalledImage};

/// A step of the model.
#[derive(Clone, Debug)]
enum Step {
    Add(usize, bool),
    Replace(usize, bool),
    Remove(usize),
    Install(usize),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        (name.clone(), any::<bool>()).prop_map(|(name, text)| Step::Add(name, text)),
        (name.clone(), any::<bool>()).prop_map(|(name, text)| Step::Replace(name, text)),
        name.clone().prop_map(Step::Remove),
        (0..IMAGES).prop_map(Step::Install),
        (0..IMAGES).prop_map(Step::Release),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const TEXTS: [&str; 2] = ["static x:u32", "static x:u64"];
/// An image for each name, type and kind of import.
const IMAGES: usize = NAMES.len() * 3 * 2;

/// What image `number` imports: a name, a text (none: 2), and whether it may be missing.
fn imports(number: usize) -> (usize, usize, bool) {
    (number % 3, number / 3 % 3, number / 9 == 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn images_are_bound_as_a_model_says(steps in proptest::collection::vec(step(), 1..60)) {
        let (executor, _) = executor(1 << 20, 64);
        let exports = executor.exports();
        let mut thread = executor.thread().unwrap();
        // Name → text and address; number → image.
        let mut model = BTreeMap::<usize, (usize, u64)>::new();
        let mut bound = BTreeMap::<usize, Arc<InstalledImage>>::new();
        // What an image finds: its answer, or why there is none.
        let finds_what = |model: &BTreeMap<usize, (usize, u64)>, number| {
            let (name, text, is_weak) = imports(number);
            match model.get(&name) {
                None if is_weak => Ok(0),
                None => Err(Rejection::MissingImport),
                Some((exported, at)) if text == 2 || *exported == text => Ok(*at),
                Some(_) => Err(Rejection::ImportSignature),
            }
        };
        for step in steps {
            match step {
                Step::Add(name, text) => {
                    let (symbol, at) = variable(NAMES[name], TEXTS[usize::from(text)]);
                    let exists = model.contains_key(&name);
                    prop_assert_eq!(exports.add(symbol).is_err(), exists);
                    model.entry(name).or_insert((text.into(), at));
                }
                Step::Replace(name, text) => {
                    let (symbol, at) = variable(NAMES[name], TEXTS[usize::from(text)]);
                    let fits = model.get(&name).is_some_and(|(exported, _)| *exported == usize::from(text));
                    prop_assert_eq!(exports.replace(symbol).is_ok(), fits);
                    if fits {
                        model.insert(name, (text.into(), at));
                    }
                }
                Step::Remove(name) => {
                    prop_assert_eq!(exports.remove(NAMES[name]).is_ok(), model.remove(&name).is_some());
                }
                Step::Install(number) => {
                    let (name, text, is_weak) = imports(number);
                    let flags = if is_weak { ImportFlags::WEAK } else { ImportFlags::NONE };
                    let parts = finds(NAMES[name], TEXTS.get(text).unwrap_or(&""), flags);
                    match (install(&executor, &parts), finds_what(&model, number)) {
                        (Ok(image), Ok(_)) => drop(bound.insert(number, image)),
                        (Err(refusal), Err(reason)) => prop_assert_eq!(refusal.reason, reason),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Release(number) => drop(bound.remove(&number)),
            }
            for (number, image) in &bound {
                match (run(&mut thread, image), finds_what(&model, *number)) {
                    (Ok(found), Ok(at)) => prop_assert_eq!(found, vec![at]),
                    (Err(failed), Err(reason)) => prop_assert_eq!(failed.status, Status::Rejected(reason)),
                    other => prop_assert!(false, "image {number}: {other:?}"),
                }
            }
        }
        prop_assert_eq!(exports.waiting(), 0);
    }
}
