//! Host objects that an ifunc holds: cursors, transactions, buffers.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use ifunc_abi::text::Text;

use crate::TargetArgs;
use crate::ffi::Value;

/// An object of the host that an ifunc holds: a host function returns it, alone or in an `Option` or a `Result`, and the ifunc passes
/// `&T` and `&mut T` of it to other host functions. `T` is [opaque](macro@crate::Opaque).
///
/// The host drops the object when the ifunc drops its `Owned`, or passes it back by value; and when the invocation ends by a panic, a
/// fault or its deadline. An ifunc that forgets it ([`core::mem::forget`]) leaks the object, unless it runs in a runner process: the host then
/// drops it when the invocation ends. No other invocation reaches it.
///
/// ```
/// mod host {
///     use ifunc::Owned;
///
///     #[derive(ifunc::Opaque)]
///     #[opaque("cursor/1")]
///     pub struct Cursor(std::vec::IntoIter<u64>);
///
///     #[ifunc::export]
///     fn open(from: u64, to: u64) -> Result<Owned<Cursor>, i32> {
///         if from > to {
///             return Err(1);
///         }
///         Ok(Owned::new(Cursor((from..to).collect::<Vec<_>>().into_iter())))
///     }
///
///     #[ifunc::export]
///     fn next_of(cursor: &mut Cursor) -> Option<u64> {
///         cursor.0.next()
///     }
/// }
///
/// mod ifuncs {
///     use ifunc::Owned;
///     use ifunc::prelude::*;
///
///     #[derive(Opaque)]
///     #[opaque("cursor/1")]
///     pub struct Cursor(ifunc::Foreign);
///
///     #[ifunc::import]
///     unsafe extern "C" {
///         safe fn open(from: u64, to: u64) -> Result<Owned<Cursor>, i32>;
///         safe fn next_of(cursor: &mut Cursor) -> Option<u64>;
///     }
///
///     #[ifunc]
///     pub fn sum(to: u64, total: &mut u64) -> u64 {
///         if let Ok(mut cursor) = open(0, to) {
///             while let Some(next) = next_of(&mut cursor) {
///                 *total += next;
///             }
///         }
///         *total
///     }
/// }
/// # fn main() {
/// assert_eq!(ifuncs::sum(5, &mut 0), 10);
/// # }
/// ```
#[repr(transparent)]
pub struct Owned<T: TargetArgs + 'static>(NonNull<T>, PhantomData<T>);

impl<T: TargetArgs + 'static> Owned<T> {
    fn into_raw(self) -> NonNull<T> {
        let pointer = self.0;
        core::mem::forget(self);
        pointer
    }
}

impl<T: TargetArgs + 'static> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it owns the object. An ifunc's `T` is a placeholder without contents.
        unsafe { self.0.as_ref() }
    }
}

impl<T: TargetArgs + 'static> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, exclusively.
        unsafe { self.0.as_mut() }
    }
}

impl<T: TargetArgs + 'static> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.0).finish()
    }
}

/// The object crosses as a pointer, with the obligation to drop it.
impl<T: TargetArgs + 'static> Value for Owned<T> {
    const TEXT: Text = Text::new().str("owned ").text(&<T as TargetArgs>::TEXT);
    type C = *mut T;
    const C_NAME: &'static str = "void *";

    fn into_c(self) -> *mut T {
        let pointer = self.into_raw();
        #[cfg(not(ifunc_image))]
        outside::hand_over(pointer);
        pointer.as_ptr()
    }

    fn from_c(pointer: *mut T) -> Self {
        match NonNull::new(pointer) {
            Some(pointer) => {
                #[cfg(not(ifunc_image))]
                outside::take_back(pointer);
                Self(pointer, PhantomData)
            }
            None => panic!("a null pointer was passed for an object"),
        }
    }
}

/// In an image, the target drops the object.
#[cfg(ifunc_image)]
impl<T: TargetArgs + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        unsafe extern "C" {
            fn __ifunc_release(object: *mut core::ffi::c_void);
        }
        // SAFETY: this was the object's only owner.
        unsafe { __ifunc_release(self.0.as_ptr().cast()) }
    }
}

#[cfg(not(ifunc_image))]
impl<T: TargetArgs + 'static> Owned<T> {
    /// An object for an ifunc. Its type has a size: objects are told apart by their addresses.
    ///
    /// ```compile_fail
    /// #[derive(ifunc::Opaque)]
    /// #[opaque("token/1")]
    /// struct Token(());
    ///
    /// ifunc::Owned::new(Token(()));
    /// ```
    #[must_use]
    pub fn new(value: T) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "an object without a size has no address of its own; help: give its type a field, a `u8` for example"
            );
        }
        let pointer = NonNull::from(std::boxed::Box::leak(std::boxed::Box::new(value)));
        Self(pointer, PhantomData)
    }

    /// The object, of a host that got it back.
    #[must_use]
    pub fn into_inner(self) -> T {
        outside::forget_held(self.0.cast());
        // SAFETY: on the host's side it came from the box of `new`.
        *unsafe { std::boxed::Box::from_raw(self.into_raw().as_ptr()) }
    }
}

#[cfg(not(ifunc_image))]
impl<T: TargetArgs + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        if !outside::drop_held(self.0.cast()) {
            // SAFETY: it was not handed over, so it came from the box of `new`, whose type is `T`.
            drop(unsafe { std::boxed::Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// Hands an object over that a host function returns inside an `Option` or a `Result`. The shims call it.
#[cfg(not(ifunc_image))]
#[doc(hidden)]
#[must_use]
pub fn hand_over<T: TargetArgs + 'static>(owned: Owned<T>) -> Owned<T> {
    let pointer = owned.into_raw();
    outside::hand_over(pointer);
    Owned(pointer, PhantomData)
}

/// Who drops an object that was handed over: the gate of the invocation that holds it. In a unit test of an ifunc, where no invocation runs,
/// the objects are kept here, because the ifunc's `T` is a placeholder.
#[cfg(not(ifunc_image))]
mod outside {
    use core::ffi::c_void;
    use core::ptr::NonNull;
    use std::boxed::Box;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::vec::Vec;

    use crate::host::{HeldObject, hold, take_held};

    /// Objects that were handed over without an invocation.
    static HELD: Mutex<Vec<HeldObject>> = Mutex::new(Vec::new());

    pub(super) fn hand_over<T: 'static>(pointer: NonNull<T>) {
        unsafe fn drop_box<T>(pointer: *mut c_void) {
            // SAFETY: the caller passes the pointer of a box of this type, once.
            drop(unsafe { Box::from_raw(pointer.cast::<T>()) });
        }
        if find(&held(), pointer.cast()).is_some() {
            // A unit test's ifunc passes it back: the host's function takes it over as it is kept here.
            return;
        }
        // SAFETY: the pointer came from the box of `Owned::new`, and its owner was forgotten.
        let object = unsafe { HeldObject::new(pointer.cast(), drop_box::<T>) };
        if let Err(object) = hold(object) {
            held().push(object);
        }
    }

    fn held() -> MutexGuard<'static, Vec<HeldObject>> {
        HELD.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(held: &[HeldObject], pointer: NonNull<c_void>) -> Option<usize> {
        held.iter().rposition(|object| object.is(pointer))
    }

    /// Does not keep an object any longer.
    pub(super) fn forget_held(pointer: NonNull<c_void>) {
        let mut held = held();
        if let Some(index) = find(&held, pointer) {
            held.swap_remove(index).forget();
        }
    }

    pub(super) fn take_back<T>(pointer: NonNull<T>) {
        // An ifunc gave it back to a host function; or a unit test's ifunc got it, which drops it by what is kept here.
        if let Some(object) = take_held(pointer.cast()) {
            object.forget();
        }
    }

    /// Drops an object that was handed over without an invocation. `false`: it was not.
    pub(super) fn drop_held(pointer: NonNull<c_void>) -> bool {
        let mut held = held();
        let Some(index) = find(&held, pointer) else {
            return false;
        };
        let object = held.swap_remove(index);
        // What the object's destructor calls may hold others.
        drop(held);
        drop(object);
        true
    }
}
