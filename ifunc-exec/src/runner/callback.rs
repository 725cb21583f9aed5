//! The target's side of callbacks: what a function of the host calls in place of a function of an ifunc in a runner process.
//!
//! The host's function gets an address of this file, and a *key* as the callback's data. A key is a number, not an address: it is looked up
//! among the calls that run on this thread, so a callback that the host's function kept is found to be over, whoever calls it and when.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::objects::{Loans, Objects, TOO_MANY};
use super::registers::{Passed, Registers};
use super::signature::{MAX_WORDS, Output, Param, Signature};
use crate::arch::function_of_any_signature;
use crate::held::discard;

/// Most callbacks of a call: each takes two words.
const MAX_CALLBACKS: usize = MAX_WORDS / 2;

/// Why a callback is not called that takes target arguments, of which a function of the host has none.
const NO_TYPE: &str = "its callback takes target arguments of no type";

/// Who calls the functions of an ifunc.
pub(super) trait Ifunc {
    /// Calls a callback that was passed as `words` for parameter `param` of the function of the host of this number.
    ///
    /// # Safety
    /// `passed` is what a callback of this signature was called with.
    ///
    /// # Errors
    /// It did not return.
    unsafe fn call_back(&self, callback: &Callback<'_>, passed: &Passed<'_>) -> Result<u64, NotReturned>;
}

/// Why a callback did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReturned {
    /// It ended early, or its process has ended: the runner, or what waits for it, knows why.
    Ended,
    /// It was not called, for this reason.
    NotCalled(&'static str),
}

/// A callback of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callback<'a> {
    /// The number of the function of the host to which it was passed, and of the parameter.
    pub(super) function: u64,
    pub(super) param: usize,
    /// What the ifunc passed.
    pub(super) words: [u64; 2],
    signature: &'a Signature,
}

/// A call of a function of the host that runs, with its callbacks.
pub(super) struct RunningCall<'a> {
    number: u64,
    function: u64,
    ifunc: &'a dyn Ifunc,
    objects: &'a Objects<'a>,
    callbacks: [Option<Callback<'a>>; MAX_CALLBACKS],
    count: usize,
    /// Why a callback of it did not return: no further one is called.
    stopped: Cell<Option<NotReturned>>,
    outer: Cell<*const RunningCall<'static>>,
}

thread_local! {
    /// The innermost call of this thread with callbacks.
    static INNERMOST: Cell<*const RunningCall<'static>> = const { Cell::new(std::ptr::null()) };
}

/// The number of the last call of any thread: a callback that is kept, and called on another thread, is none of a call there.
static LAST: AtomicU64 = AtomicU64::new(0);

/// What a callback of a call has as its data: the call's number, the callback's, and whether it returns an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

impl Key {
    fn new(call: u64, callback: usize, is_option: bool) -> Self {
        Self(call << 4 | (callback as u64) << 1 | u64::from(is_option))
    }

    fn call(self) -> u64 {
        self.0 >> 4
    }

    fn callback(self) -> usize {
        (self.0 >> 1 & 7) as usize
    }

    /// What a callback returns that does not return a value: `None`, or `Break`.
    fn no_value(self) -> u64 {
        u64::from(self.0 & 1 == 0)
    }
}

const _: () = assert!(MAX_CALLBACKS < 8);

impl<'a> RunningCall<'a> {
    /// A call of the function of the host of this number. Callbacks are given some of the invocation's objects.
    pub(super) fn new(function: u64, ifunc: &'a dyn Ifunc, objects: &'a Objects<'a>) -> Self {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            number,
            function,
            ifunc,
            objects,
            callbacks: [None; MAX_CALLBACKS],
            count: 0,
            stopped: Cell::new(None),
            outer: Cell::new(std::ptr::null()),
        }
    }

    /// The two words that the host's function gets for a callback. Its signature says that there are not more.
    pub(super) fn add(&mut self, param: usize, signature: &'a Signature, words: [u64; 2]) -> [u64; 2] {
        // The host's function finds out, as in its own process.
        if words[0] == 0 {
            return [0; 2];
        }
        let is_option = matches!(signature.output, Output::Out { .. });
        let key = Key::new(self.number, self.count, is_option);
        self.callbacks[self.count] = Some(Callback {
            function: self.function,
            param,
            words,
            signature,
        });
        self.count += 1;
        [ifunc_call_back as *const () as u64, key.0]
    }

    /// Runs the function of the host. Its callbacks are found until it returns.
    pub(super) fn run<R>(&self, call: impl FnOnce() -> R) -> R {
        struct Innermost;
        impl Drop for Innermost {
            fn drop(&mut self) {
                // SAFETY: set below, to a call that is alive: it is dropped after this.
                let outer = unsafe { (*INNERMOST.get()).outer.get() };
                INNERMOST.set(outer);
            }
        }
        if self.count == 0 {
            return call();
        }
        self.outer.set(INNERMOST.get());
        INNERMOST.set((&raw const *self).cast());
        let _innermost = Innermost;
        call()
    }

    /// Why a callback of it did not return.
    pub(super) fn stopped(&self) -> Option<NotReturned> {
        self.stopped.get()
    }

    /// Calls a callback of this call. `None`: it did not return, or none does any more.
    ///
    /// # Safety
    /// The registers are those of a call of a callback with its signature.
    unsafe fn call_back(&self, callback: usize, registers: &Registers) -> Option<u64> {
        let callback = self.callbacks.get(callback)?.as_ref()?;
        // SAFETY: the caller's promise; the first argument is the data.
        let mut passed = unsafe { Passed::of(registers, callback.signature, 1) };
        let mut loans = Loans::new(self.objects);
        for (param, word) in passed.objects() {
            let pointer = std::ptr::with_exposed_provenance_mut(*word as usize);
            let is_stopped = self.stopped.get().is_some();
            match param {
                // No callback runs that could take the object, and the host's function may go on to pass others.
                Param::Owned(_) if is_stopped => discard(pointer),
                _ if is_stopped => {}
                Param::Target {
                    text: Some(text),
                    is_mutable,
                } => *word = loans.lend(pointer, text, *is_mutable),
                Param::Owned(Some(text)) if self.objects.has_room(true) => {
                    *word = self.objects.give(pointer, text)
                }
                Param::Owned(_) => {
                    discard(pointer);
                    self.stopped.set(Some(NotReturned::NotCalled(TOO_MANY)));
                }
                _ => self.stopped.set(Some(NotReturned::NotCalled(NO_TYPE))),
            }
        }
        if self.stopped.get().is_some() {
            return None;
        }
        // SAFETY: as above.
        match unsafe { self.ifunc.call_back(callback, &passed) } {
            Ok(result) => Some(result),
            Err(why) => {
                self.stopped.set(Some(why));
                None
            }
        }
    }
}

function_of_any_signature!(ifunc_call_back, call_back);

/// What every callback is to a function of the host.
///
/// # Safety
/// The registers are those of a call of a callback, of which the first is its key.
unsafe extern "C-unwind" fn call_back(_: u32, registers: *mut Registers) -> u64 {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut *registers };
    registers.float = 0;
    let key = Key(registers.first());
    let mut next = INNERMOST.get();
    // SAFETY: null, or a call of this thread that runs, as `RunningCall::run` leaves them.
    while let Some(call) = unsafe { next.as_ref() } {
        if call.number == key.call() {
            // SAFETY: the caller's promise: the host's function knows a callback by the signature of its parameter.
            let result = unsafe { call.call_back(key.callback(), registers) };
            return result.unwrap_or(key.no_value());
        }
        next = call.outer.get();
    }
    key.no_value()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::AtomicU64;

    use super::*;

    type Each = unsafe extern "C-unwind" fn(u64, u64, *mut u32) -> u8;

    /// Counts, and returns until it is to stop.
    #[derive(Default)]
    struct Counts {
        called: RefCell<Vec<(u64, usize, [u64; 2])>>,
        stop: Cell<Option<NotReturned>>,
    }

    impl Ifunc for Counts {
        unsafe fn call_back(&self, callback: &Callback<'_>, _: &Passed<'_>) -> Result<u64, NotReturned> {
            let mut called = self.called.borrow_mut();
            called.push((callback.function, callback.param, callback.words));
            match self.stop.get() {
                None => Ok(called.len() as u64),
                Some(why) => Err(why),
            }
        }
    }

    fn signature(text: &str) -> Signature {
        let text = format!("fn f({text})");
        match &Signature::of(&text).unwrap().params[0] {
            Param::Callback(signature) => (**signature).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn call([function, key]: [u64; 2]) -> u8 {
        let function = std::ptr::with_exposed_provenance::<()>(function as usize);
        // SAFETY: the function takes the arguments of every signature.
        unsafe { std::mem::transmute::<*const (), Each>(function)(key, 7, std::ptr::null_mut()) }
    }

    #[test]
    fn a_callback_is_called_while_its_call_runs_and_at_no_other_time() {
        let (counts, last) = (Counts::default(), AtomicU64::new(0));
        let objects = Objects::new(None, &last);
        let (breaks, optional) = (
            signature("&Fn(u64)->ControlFlow<()>"),
            signature("&Fn(u64)->Option<u32>"),
        );
        let mut outer = RunningCall::new(3, &counts, &objects);
        let first = outer.add(1, &breaks, [10, 11]);
        let second = outer.add(2, &optional, [20, 21]);
        assert_eq!(outer.add(4, &breaks, [0, 5]), [0, 0], "null stays null");
        let none = |why: &str| assert_eq!([call(first), call(second)], [1, 0], "{why}: Break and None");
        none("before");
        outer.run(|| {
            assert_eq!((call(first), call(second)), (1, 2));
            let mut inner = RunningCall::new(5, &counts, &objects);
            let third = inner.add(0, &breaks, [30, 31]);
            inner.run(|| assert_eq!((call(third), call(first)), (3, 4)));
            assert_eq!(call(third), 1, "its call has returned");
            std::thread::scope(|scope| scope.spawn(|| none("on another thread")).join().unwrap());
        });
        none("after");
        let expected = [
            (3, 1, [10, 11]),
            (3, 2, [20, 21]),
            (5, 0, [30, 31]),
            (3, 1, [10, 11]),
        ];
        assert_eq!(*counts.called.borrow(), expected);
        // A later call in its place has other keys.
        let mut later = RunningCall::new(3, &counts, &objects);
        later.add(1, &breaks, [10, 11]);
        later.run(|| none("of an earlier call"));
        assert_eq!(counts.called.borrow().len(), 4);
    }

    #[test]
    fn after_one_that_did_not_return_none_is_called() {
        for why in [NotReturned::Ended, NotReturned::NotCalled("a reason")] {
            let (counts, last) = (Counts::default(), AtomicU64::new(0));
            let objects = Objects::new(None, &last);
            let optional = signature("&mut FnMut(u64)->Option<u32>");
            let mut running = RunningCall::new(3, &counts, &objects);
            let words = running.add(0, &optional, [1, 0]);
            running.run(|| {
                assert_eq!(call(words), 1);
                counts.stop.set(Some(why));
                assert_eq!([call(words), call(words)], [0, 0]);
            });
            assert_eq!(counts.called.borrow().len(), 2);
            assert_eq!(running.stopped(), Some(why));
        }
    }

    #[test]
    fn a_host_that_panics_leaves_its_call() {
        let (counts, last) = (Counts::default(), AtomicU64::new(0));
        let objects = Objects::new(None, &last);
        let breaks = signature("&Fn()->ControlFlow<()>");
        let mut running = RunningCall::new(3, &counts, &objects);
        let words = running.add(0, &breaks, [1, 0]);
        let panics = std::panic::AssertUnwindSafe(|| running.run(|| panic!("in the host")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!((call(words), counts.called.borrow().len()), (1, 0));
    }
}
