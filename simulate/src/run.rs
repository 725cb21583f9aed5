//! One run: a seed, its steps, and what is left of them when a violation is reduced.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ledger::Violation;
use crate::mesh::Mesh;
use crate::report::Coverage;
use crate::rng::Rng;
use crate::world::World;

/// How a run went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) steps: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Vec<String>,
    pub(crate) coverage: Coverage,
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are violations: their message is kept, not printed.
pub(crate) fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|panic| *panic = info.to_string().replace('\n', " "));
    }));
}

fn panicked(_: Box<dyn Any + Send>) -> Violation {
    Violation::new("a connection does not panic", PANIC.with_borrow(String::clone))
}

/// Runs a seed. `kept`: the numbers of the steps that are taken; `None`: all up to `steps`.
pub(crate) fn run(seed: u64, steps: u64, kept: Option<&[u64]>, is_traced: bool) -> Outcome {
    // Odd seeds are groups of nodes.
    if seed % 2 == 1 {
        return run_mesh(seed, steps, kept, is_traced);
    }
    let mut world = World::new(seed, is_traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.verdict()?;
        let mut step = |step| world.step(&mut Rng::of_step(seed, step));
        match kept {
            Some(kept) => kept.iter().copied().try_for_each(&mut step)?,
            None => (0..steps).try_for_each(&mut step)?,
        }
        world.finish(&mut Rng::of_step(seed, u64::MAX - 1))
    }));
    let violation = result.map_or_else(|panic| Some(panicked(panic)), Result::err);
    if violation.is_some() && world.is_traced() {
        world.describe();
    }
    Outcome {
        steps: world.steps,
        violation,
        trace: world.take_trace(),
        coverage: Coverage::default(),
    }
}

/// Runs a seed of a group.
fn run_mesh(seed: u64, steps: u64, kept: Option<&[u64]>, is_traced: bool) -> Outcome {
    let mut mesh = Mesh::new(seed, is_traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut step = |step| mesh.step(&mut Rng::of_step(seed, step));
        match kept {
            Some(kept) => kept.iter().copied().try_for_each(&mut step)?,
            None => (0..steps).try_for_each(&mut step)?,
        }
        mesh.finish_run(&mut Rng::of_step(seed, u64::MAX - 1))
    }));
    let violation = result.map_or_else(|panic| Some(panicked(panic)), Result::err);
    if violation.is_some() && mesh.is_traced() {
        mesh.describe();
    }
    Outcome {
        steps: mesh.steps,
        violation,
        trace: mesh.take_trace(),
        coverage: mesh.coverage,
    }
}

/// Drops steps as long as the same promise is broken. Returns the numbers of those that are left.
pub(crate) fn reduce(seed: u64, steps: u64, rule: &str) -> Vec<u64> {
    let fails = |kept: &[u64]| {
        run(seed, 0, Some(kept), false)
            .violation
            .is_some_and(|v| v.rule == rule)
    };
    let mut kept: Vec<u64> = (0..steps).collect();
    let mut size = kept.len() / 2;
    let mut attempts = 0;
    while size > 0 && attempts < MAX_ATTEMPTS {
        let before = kept.len();
        let mut from = 0;
        while from < kept.len() && attempts < MAX_ATTEMPTS {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + size).min(kept.len()));
            attempts += 1;
            if fails(&fewer) {
                kept = fewer;
            } else {
                from += size;
            }
        }
        if kept.len() == before || size > 1 {
            size /= 2;
        }
    }
    kept
}

/// Runs that a reduction may take.
const MAX_ATTEMPTS: usize = 3000;
