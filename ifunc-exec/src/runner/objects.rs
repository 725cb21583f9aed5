//! What an invocation in a runner process may pass to functions that take an object of the host: the target arguments, the objects that
//! functions of the host gave it (`ifunc::Owned`), and those that they lend to its callbacks.
//!
//! Objects stay in the target. The runner has a number for each, in the form of an address that no process has. A number is valid in one
//! invocation and never given out again, and an object is dropped by the gate (`held.rs`), whatever the runner does. What runs there may
//! pass any word: so an object is found by its number, its type is compared, and, as functions of the host call back and so nest, it is
//! borrowed as `RefCell` does: in safe code of an ifunc the compiler has seen to that.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer::CallError;
use super::signature::MAX_WORDS;
use crate::held;

/// Most objects that an invocation may hold at a time.
const MAX_OBJECTS: usize = 1024;
/// Why it is given no more.
pub(super) const TOO_MANY: &str = "the ifunc would hold more than 1024 objects of the host";
/// The upper 16 bits of a word that stands for an object: no address of a process has them.
const MARK: u64 = 0x8001;

/// The target arguments of an invocation, for functions that take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetPointer<'a> {
    pub(super) pointer: *mut c_void,
    /// The opaque type that they are.
    pub(super) text: &'a str,
    /// Several threads share them.
    pub(super) is_shared: bool,
}

/// How often something is borrowed, or [`BORROWED_MUT`].
type Borrows = u32;
const BORROWED_MUT: Borrows = Borrows::MAX;

/// An object that the invocation holds.
#[derive(Debug)]
struct Object {
    number: u64,
    pointer: *mut c_void,
    /// The opaque type that it is.
    text: String,
    borrows: Borrows,
    /// It is not the invocation's: a callback is given a reference to it.
    is_lent: bool,
}

/// The objects of an invocation.
#[derive(Debug)]
pub(super) struct Objects<'a> {
    target: Option<TargetPointer<'a>>,
    target_borrows: Cell<Borrows>,
    held: RefCell<Vec<Object>>,
    /// The number that was given out last, to any invocation of the tenant.
    last: &'a AtomicU64,
}

impl<'a> Objects<'a> {
    pub(super) fn new(target: Option<TargetPointer<'a>>, last: &'a AtomicU64) -> Self {
        Self {
            target,
            target_borrows: Cell::new(0),
            held: RefCell::default(),
            last,
        }
    }

    /// Whether a function may give it one more. `is_handed_over`: the gate has that one already. It may also have some for which the runner
    /// has no number: a function that panicked had not taken them.
    pub(super) fn has_room(&self, is_handed_over: bool) -> bool {
        let in_gate = held::count().saturating_sub(usize::from(is_handed_over));
        self.held.borrow().len().max(in_gate) < MAX_OBJECTS
    }

    /// The word that stands for an object of this type, which the invocation holds from now on.
    pub(super) fn give(&self, pointer: *mut c_void, text: &str) -> u64 {
        self.add(pointer, text, 0, false)
    }

    fn add(&self, pointer: *mut c_void, text: &str, borrows: Borrows, is_lent: bool) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.held.borrow_mut().push(Object {
            number,
            pointer,
            text: text.to_owned(),
            borrows,
            is_lent,
        });
        MARK << 48 | number
    }

    /// The object that a word stands for, of this type or of any, which the invocation gives up.
    ///
    /// # Errors
    /// There is none, it is of another type, or a function that runs borrows it.
    pub(super) fn take(&self, word: u64, text: Option<&str>) -> Result<*mut c_void, CallError> {
        let mut held = self.held.borrow_mut();
        let at = find(&held, word, text)?;
        if held[at].borrows > 0 || held[at].is_lent {
            return Err(CallError::Breach(
                "a call that gives up an object which is borrowed",
            ));
        }
        Ok(held.swap_remove(at).pointer)
    }

    /// The object that a word stands for, of this type; without one, the target arguments, whatever the word is. It is borrowed until
    /// `borrowed` is dropped.
    ///
    /// # Errors
    /// There is none, it is of another type, or it is borrowed already.
    pub(super) fn borrow(
        &self,
        word: u64,
        text: Option<&str>,
        is_mutable: bool,
        borrowed: &mut Borrowed<'_>,
    ) -> Result<*mut c_void, CallError> {
        const TWICE: CallError = CallError::Breach("a call that borrows an object which is borrowed already");
        let more = |borrows: Borrows| match (borrows, is_mutable) {
            (0, true) => Ok(BORROWED_MUT),
            (BORROWED_MUT, _) | (_, true) => Err(TWICE),
            (borrows, false) => Ok(borrows + 1),
        };
        if text.is_some() && word >> 48 == MARK {
            let mut held = self.held.borrow_mut();
            let at = find(&held, word, text)?;
            let object = &mut held[at];
            object.borrows = more(object.borrows)?;
            borrowed.note(object.number);
            return Ok(object.pointer);
        }
        let is_of_type = |target: &TargetPointer<'_>| text.is_none_or(|text| text == target.text);
        let Some(target) = self.target.filter(is_of_type) else {
            return Err(CallError::Panicked(
                "takes another type than this target serves, and the ifunc passes no object that it holds"
                    .into(),
            ));
        };
        if target.is_shared {
            return match is_mutable {
                true => Err(CallError::Breach(
                    "a call that takes shared target arguments for itself alone",
                )),
                false => Ok(target.pointer),
            };
        }
        self.target_borrows.set(more(self.target_borrows.get())?);
        borrowed.note(TARGET);
        Ok(target.pointer)
    }

    fn end_borrow(&self, number: u64) {
        let less = |borrows: Borrows| match borrows {
            BORROWED_MUT => 0,
            borrows => borrows - 1,
        };
        if number == TARGET {
            return self.target_borrows.set(less(self.target_borrows.get()));
        }
        let mut held = self.held.borrow_mut();
        // It is there: what is borrowed is not given up.
        if let Some(object) = held.iter_mut().find(|object| object.number == number) {
            object.borrows = less(object.borrows);
        }
    }
}

/// The index of the object that a word stands for.
fn find(held: &[Object], word: u64, text: Option<&str>) -> Result<usize, CallError> {
    let is_it = |object: &Object| MARK << 48 | object.number == word;
    let Some(at) = held.iter().rposition(is_it) else {
        return Err(CallError::Breach("an object that its invocation does not hold"));
    };
    match text {
        Some(text) if held[at].text != text => Err(CallError::Breach("an object of another type")),
        _ => Ok(at),
    }
}

/// The number that stands for the target arguments.
const TARGET: u64 = 0;

/// What a callback is lent, until this is dropped.
#[derive(Debug)]
pub(super) struct Loans<'a> {
    objects: &'a Objects<'a>,
    words: [u64; MAX_WORDS],
    count: usize,
}

impl<'a> Loans<'a> {
    /// Nothing yet.
    pub(super) fn new(objects: &'a Objects<'a>) -> Self {
        Self {
            objects,
            words: [0; MAX_WORDS],
            count: 0,
        }
    }

    /// The word that stands for an object of this type, to which the callback is given a reference. Each takes a word of the arguments, so
    /// there are not more.
    pub(super) fn lend(&mut self, pointer: *mut c_void, text: &str, is_mutable: bool) -> u64 {
        // What is lent by `&` is borrowed already, by the function that lends it.
        let word = self.objects.add(pointer, text, Borrows::from(!is_mutable), true);
        self.words[self.count] = word;
        self.count += 1;
        word
    }
}

impl Drop for Loans<'_> {
    fn drop(&mut self) {
        let words = &self.words[..self.count];
        let is_over = |object: &Object| words.contains(&(MARK << 48 | object.number));
        self.objects.held.borrow_mut().retain(|object| !is_over(object));
    }
}

/// What a call borrows, until this is dropped.
#[derive(Debug)]
pub(super) struct Borrowed<'a> {
    objects: &'a Objects<'a>,
    numbers: [u64; MAX_WORDS],
    count: usize,
}

impl<'a> Borrowed<'a> {
    /// Nothing yet.
    pub(super) fn new(objects: &'a Objects<'a>) -> Self {
        Self {
            objects,
            numbers: [0; MAX_WORDS],
            count: 0,
        }
    }

    /// Each takes a word of the arguments, so there are not more.
    fn note(&mut self, number: u64) {
        self.numbers[self.count] = number;
        self.count += 1;
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        for number in &self.numbers[..self.count] {
            self.objects.end_borrow(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURSOR: &str = "opaque cursor/1";

    fn breach<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> &'static str {
        match outcome {
            Err(CallError::Breach(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    fn address(word: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(word)
    }

    fn target(is_shared: bool) -> Option<TargetPointer<'static>> {
        Some(TargetPointer {
            pointer: address(64),
            text: "opaque store/1",
            is_shared,
        })
    }

    #[test]
    fn an_object_is_its_invocations_until_it_is_given_up() {
        let last = AtomicU64::new(0);
        let objects = Objects::new(None, &last);
        let words = [16, 32].map(|at| objects.give(address(at), CURSOR));
        assert_ne!(words[0], words[1]);
        // No address: bits 47 to 63 are not all alike.
        assert!(
            words
                .iter()
                .all(|word| word >> 47 != 0 && word >> 47 != (1 << 17) - 1)
        );
        let borrow = |word| objects.borrow(word, Some(CURSOR), false, &mut Borrowed::new(&objects));
        assert_eq!(borrow(words[0]).unwrap(), address(16));
        assert_eq!(borrow(words[1]).unwrap(), address(32));
        // Forged: one that was not given, its address, and one of another type.
        for forged in [words[1] + 1, words[0] & !1] {
            assert!(breach(borrow(forged)).contains("does not hold"));
            assert!(breach(objects.take(forged, None)).contains("does not hold"));
        }
        assert!(breach(objects.take(16, None)).contains("does not hold"));
        assert!(matches!(borrow(16), Err(CallError::Panicked(_))));
        assert!(breach(objects.take(words[0], Some("opaque other"))).contains("another type"));
        assert_eq!(objects.take(words[0], Some(CURSOR)).unwrap(), address(16));
        assert!(breach(objects.take(words[0], None)).contains("does not hold"));
        assert!(breach(borrow(words[0])).contains("does not hold"));
        assert_eq!(objects.take(words[1], None).unwrap(), address(32));
        // The tenant's next invocation has other words.
        let next = Objects::new(None, &last);
        let word = next.give(address(16), CURSOR);
        assert!(!words.contains(&word));
        assert!(breach(next.take(words[0], None)).contains("does not hold"));
    }

    #[test]
    fn what_is_borrowed_is_borrowed_as_rust_borrows() {
        let last = AtomicU64::new(0);
        let objects = Objects::new(target(false), &last);
        let word = objects.give(address(16), CURSOR);
        for (text, word, expected) in [(CURSOR, word, 16), ("opaque store/1", 5, 64)] {
            let borrow = |is_mutable, borrowed: &mut Borrowed<'_>| {
                objects.borrow(word, Some(text), is_mutable, borrowed)
            };
            let (mut outer, mut inner) = (Borrowed::new(&objects), Borrowed::new(&objects));
            assert_eq!(borrow(false, &mut outer).unwrap(), address(expected));
            assert_eq!(borrow(false, &mut inner).unwrap(), address(expected));
            assert!(breach(borrow(true, &mut inner)).contains("borrowed already"));
            drop(outer);
            assert!(breach(borrow(true, &mut inner)).contains("borrowed already"));
            drop(inner);
            let (mut outer, mut inner) = (Borrowed::new(&objects), Borrowed::new(&objects));
            assert_eq!(borrow(true, &mut outer).unwrap(), address(expected));
            for is_mutable in [false, true] {
                assert!(breach(borrow(is_mutable, &mut inner)).contains("borrowed already"));
                assert!(breach(borrow(is_mutable, &mut outer)).contains("borrowed already"));
            }
            if expected == 16 {
                assert!(breach(objects.take(word, None)).contains("which is borrowed"));
            }
            drop(outer);
            assert!(borrow(true, &mut inner).is_ok());
        }
        assert!(objects.take(word, None).is_ok());
    }

    #[test]
    fn shared_target_arguments_are_never_borrowed_for_one_alone() {
        let last = AtomicU64::new(0);
        let objects = Objects::new(target(true), &last);
        let mut borrowed = Borrowed::new(&objects);
        for _ in 0..3 {
            assert_eq!(
                objects.borrow(7, None, false, &mut borrowed).unwrap(),
                address(64)
            );
        }
        assert!(breach(objects.borrow(7, None, true, &mut borrowed)).contains("shared target arguments"));
    }

    #[test]
    fn what_a_callback_is_lent_it_has_until_it_returns() {
        let last = AtomicU64::new(0);
        let objects = Objects::new(None, &last);
        let held = objects.give(address(8), CURSOR);
        let mut loans = Loans::new(&objects);
        let words = [false, true].map(|is_mutable| loans.lend(address(16), CURSOR, is_mutable));
        let borrow =
            |word, is_mutable| objects.borrow(word, Some(CURSOR), is_mutable, &mut Borrowed::new(&objects));
        for word in words {
            assert_eq!(borrow(word, false).unwrap(), address(16));
            assert!(breach(objects.take(word, None)).contains("which is borrowed"));
        }
        assert!(breach(borrow(words[0], true)).contains("borrowed already"));
        assert!(borrow(words[1], true).is_ok());
        drop(loans);
        for word in words {
            assert!(breach(borrow(word, false)).contains("does not hold"));
        }
        assert!(objects.take(held, None).is_ok());
    }

    #[test]
    fn an_invocation_holds_so_many_objects_and_no_more() {
        let last = AtomicU64::new(0);
        let objects = Objects::new(None, &last);
        let mut words = Vec::new();
        while objects.has_room(false) {
            words.push(objects.give(address(16), CURSOR));
        }
        assert_eq!(words.len(), MAX_OBJECTS);
        objects.take(words[5], None).unwrap();
        assert!(objects.has_room(false));
    }
}
