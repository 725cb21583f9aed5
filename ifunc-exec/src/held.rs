//! Objects of the host that invocations hold (`ifunc::Owned`): dropped when the invocation gives them up, or ends early; of an invocation in
//! a runner process, whenever it ends.

use std::ffi::c_void;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use ifunc::host::HeldObject;

use crate::gate::{Gate, gate_of_invocation, gate_that_holds};

/// The objects that the invocation of a gate holds.
#[derive(Debug, Default)]
pub(crate) struct HeldObjects {
    /// Counts the passage of the gate in which they were handed over.
    passage: u64,
    objects: Vec<HeldObject>,
}

impl HeldObjects {
    /// Those of the invocation of this passage. What an earlier one forgot is leaked: the thread may be another one by now.
    fn current(&mut self, passage: u64) -> &mut Vec<HeldObject> {
        if self.passage != passage {
            mem::take(&mut self.objects)
                .into_iter()
                .for_each(HeldObject::forget);
            self.passage = passage;
        }
        &mut self.objects
    }

    /// Those of the invocation of this passage, which has ended.
    pub(crate) fn take(&mut self, passage: u64) -> Vec<HeldObject> {
        mem::take(self.current(passage))
    }
}

impl Drop for HeldObjects {
    fn drop(&mut self) {
        mem::take(&mut self.objects)
            .into_iter()
            .for_each(HeldObject::forget);
    }
}

/// Drops the objects that the invocation of this passage of a gate held.
pub(crate) fn drop_of(gate: &Gate, passage: u64) {
    let objects = gate.held.borrow_mut().take(passage);
    drop_all(objects);
}

/// Drops objects that an invocation held which ended early.
#[cold]
pub(crate) fn drop_all(objects: Vec<HeldObject>) {
    for object in objects.into_iter().rev() {
        if catch_unwind(AssertUnwindSafe(|| drop(object))).is_err() {
            tracing::error!(target: crate::LOG, "an object that an invocation held panicked when it was dropped");
        }
    }
}

fn take_from((gate, passage): (&Gate, u64), pointer: NonNull<c_void>) -> Option<HeldObject> {
    let mut held = gate.held.borrow_mut();
    let objects = held.current(passage);
    let index = objects.iter().rposition(|object| object.is(pointer))?;
    Some(objects.swap_remove(index))
}

/// `CallGate::hold`.
pub(crate) fn hold(object: HeldObject) -> Result<(), HeldObject> {
    let Some((gate, passage)) = gate_that_holds() else {
        return Err(object);
    };
    gate.held.borrow_mut().current(passage).push(object);
    Ok(())
}

/// `CallGate::take_held`.
pub(crate) fn take_held(pointer: NonNull<c_void>) -> Option<HeldObject> {
    take_from(gate_that_holds()?, pointer)
}

/// Drops an object that the invocation holds, because nothing leads to it any more.
pub(crate) fn discard(pointer: *mut c_void) {
    let object = NonNull::new(pointer).and_then(take_held);
    drop_all(object.into_iter().collect());
}

/// How many objects the invocation holds that waits for the host function which runs.
pub(crate) fn count() -> usize {
    gate_that_holds().map_or(0, |(gate, passage)| gate.held.borrow_mut().current(passage).len())
}

/// The invocation of a gate that runs in a runner process. Until this is dropped, functions of the host hand objects over to it.
pub(crate) struct HoldsForRunner<'a>(&'a Gate);

impl<'a> HoldsForRunner<'a> {
    pub(crate) fn new(gate: &'a Gate) -> Self {
        gate.is_for_runner.set(true);
        Self(gate)
    }
}

impl Drop for HoldsForRunner<'_> {
    fn drop(&mut self) {
        self.0.is_for_runner.set(false);
        // However it ended: a runner that forgets what it holds takes no memory of the target.
        drop_of(self.0, self.0.passages.count());
    }
}

/// `__ifunc_release`.
pub(crate) extern "C" fn release(pointer: *mut c_void) {
    let invocation = gate_of_invocation().and_then(|gate| Some((gate, gate.passages.within()?)));
    let Some(invocation) = invocation else { return };
    ifunc::host::through_gate(|| {
        let object = NonNull::new(pointer).and_then(|pointer| take_from(invocation, pointer));
        assert!(
            object.is_some(),
            "the ifunc released an object that it does not hold"
        );
    });
}
