//! Travelling on: an invocation sends others, forwards itself to another node, or answers in parts.
//!
//! A target that has joined a group is a *node* with a number. An invocation there may
//!
//! * [`send`](Context::send): start another invocation on a node, and owe nothing for it;
//! * [`forward`](Context::forward): let another invocation, on another node, go on in its place. That one answers the source;
//! * [`reply`](Context::reply): send a partial answer of a call that takes a stream.
//!
//! ```
//! #![no_std]
//! use ifunc::prelude::*;
//! use ifunc::Onward;
//!
//! #[ifunc::layout]
//! #[derive(Clone, Copy)]
//! pub struct Chase {
//!     at: u64,
//!     steps: u64,
//! }
//!
//! /// Follows a chain of indices through a table that is cut over the nodes of a group, 1024 entries on each.
//! #[ifunc]
//! pub fn chase(mut chase: Chase, table: &mut [u64; 1024], ctx: &mut Context) -> Onward<u64> {
//!     while chase.steps > 0 {
//!         let node = (chase.at / 1024) as u32;
//!         if ctx.node().is_some_and(|here| here != node) {
//!             return match ctx.forward::<self::chase>(node, &chase) {
//!                 Ok(()) => Onward::Forwarded,
//!                 Err(why) => panic!("node {node}: {why}"),
//!             };
//!         }
//!         chase.at = table[(chase.at % 1024) as usize];
//!         chase.steps -= 1;
//!     }
//!     Onward::Answer(chase.at)
//! }
//! # fn main() {}
//! ```
//!
//! What an invocation sends leaves when it has ended: if it panics, nothing that it forwarded or sent leaves, and the source gets
//! the panic. None of these functions waits. Where there is no memory for what an invocation sends, they return
//! [`TravelError::Busy`].

use core::time::Duration;

use ifunc_abi::context::Travel;
pub use ifunc_abi::travel::TravelError;
use ifunc_abi::travel::{NO_DEADLINE, NO_NODE};

use crate::Context;
use crate::codec::Fixed;
use crate::payload::{Answer, EncodeError, Ifunc};

/// The answer of an ifunc that may forward itself: its return type is `Onward<T>`, and sources get a `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward<T> {
    /// This invocation answers.
    Answer(T),
    /// It was [forwarded](Context::forward): another one answers.
    Forwarded,
    /// It answered in [parts](Context::reply), and no other part follows.
    Replied,
}

/// Ends an `X_main` whose ifunc may have forwarded itself.
#[inline]
pub fn finish_onward<C, A: Answer<C>>(ctx: &mut Context<'_>, onward: &Onward<A>) -> u32 {
    match onward {
        Onward::Answer(answer) => crate::context::finish::<C, A>(ctx, answer),
        Onward::Forwarded | Onward::Replied => ifunc_abi::context::MAIN_OK,
    }
}

impl Context<'_> {
    /// The number of this node; `None`: the target is not a node of a group.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        self.travel()
            .map(|travel| travel.node)
            .filter(|&node| node != NO_NODE)
    }

    /// The numbers of the other nodes of the group, ascending.
    #[must_use]
    pub fn peers(&self) -> &[u32] {
        match self.travel() {
            Some(travel) if travel.peer_count > 0 => {
                // SAFETY: the target keeps the list as long as the invocation runs.
                unsafe { core::slice::from_raw_parts(travel.peers, travel.peer_count as usize) }
            }
            _ => &[],
        }
    }

    /// How many nodes forwarded or sent before this invocation; 0: a source invoked it.
    #[must_use]
    pub fn hops(&self) -> u32 {
        self.travel().map_or(0, |travel| travel.hops.into())
    }

    /// How many hops may follow.
    #[must_use]
    pub fn hops_left(&self) -> u32 {
        self.travel().map_or(0, |travel| travel.hops_left.into())
    }

    /// When the source stops waiting for the answer, on the clock of [`now`](Self::now); `None`: never.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let deadline = self.travel()?.deadline;
        (deadline != NO_DEADLINE).then(|| Duration::from_nanos(deadline))
    }

    /// The time since an unspecified moment, on a clock of the target that never goes back.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(imports::now())
    }

    /// Starts another invocation of an ifunc of this package: `ctx.send::<count>(node, &payload)`. Its answer is dropped.
    /// The own number is a node, too.
    ///
    /// # Errors
    /// It is not sent: see [`TravelError`]. A payload that does not encode is [`TooLarge`](TravelError::TooLarge).
    pub fn send<F: Ifunc>(&mut self, node: u32, payload: &F::Payload<'_>) -> Result<(), TravelError> {
        self.pass_on::<F>(imports::send, node, payload)
    }

    /// Lets an invocation of an ifunc of this package, often of the same one, go on in place of this one:
    /// `ctx.forward::<visit>(node, &payload)`. That invocation answers, so it must have the same type of answers. After this, return
    /// without an answer ([`Onward::Forwarded`], or nothing): an answer, too, is an error that the source gets.
    ///
    /// # Errors
    /// It is not forwarded, and this invocation still answers: see [`TravelError`].
    pub fn forward<F: Ifunc>(&mut self, node: u32, payload: &F::Payload<'_>) -> Result<(), TravelError> {
        self.pass_on::<F>(imports::forward, node, payload)
    }

    /// Sends a partial answer to a source that [takes a stream](TravelError::Window). It has the type of the ifunc's answers: a fixed
    /// layout, or a tuple, an `Option` or a `Vec` of those, whose bytes are the same by both codecs.
    ///
    /// # Errors
    /// It is not sent: see [`TravelError`].
    pub fn reply<T: Answer<Fixed>>(&mut self, part: &T) -> Result<(), TravelError> {
        self.reply_by::<Fixed, T>(part)
    }

    /// As [`reply`](Self::reply), with another codec: `ctx.reply_by::<Postcard, _>(&row)`.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_by<C, T: Answer<C>>(&mut self, part: &T) -> Result<(), TravelError> {
        self.reply_with(|out| part.encode(out))
    }

    /// As [`reply`](Self::reply), for answers that are bytes.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn reply_bytes(&mut self, bytes: &[u8]) -> Result<(), TravelError> {
        let out = self.outgoing(bytes.len())?;
        out.copy_from_slice(bytes);
        self.call(|raw| {
            // SAFETY: the context is valid, and the memory holds as many bytes.
            unsafe { imports::reply(raw, bytes.len()) }
        })
    }

    /// Writes a partial answer of unknown length: into all the memory that an answer may have.
    fn reply_with(
        &mut self,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    ) -> Result<(), TravelError> {
        let out = self.outgoing(self.answer_capacity())?;
        let len = encode(out).map_err(|_| TravelError::TooLarge)?;
        self.call(|raw| {
            // SAFETY: the context is valid, and `encode` wrote as many bytes of the memory.
            unsafe { imports::reply(raw, len) }
        })
    }

    fn pass_on<F: Ifunc>(
        &mut self,
        import: imports::PassOn,
        node: u32,
        payload: &F::Payload<'_>,
    ) -> Result<(), TravelError> {
        let entry = F::entry().ok_or(TravelError::NoGroup)?;
        let out = self.outgoing(F::bound(payload))?;
        let len = F::encode(payload, out).map_err(|_| TravelError::TooLarge)?;
        self.call(|raw| {
            // SAFETY: the context is valid, and `encode` wrote as many bytes of the memory.
            unsafe { import(raw, node, entry.cast(), len) }
        })
    }

    /// Memory of the target for the next payload or part.
    fn outgoing(&mut self, size: usize) -> Result<&mut [u8], TravelError> {
        let raw = self.raw.as_deref_mut().ok_or(TravelError::NoGroup)?;
        // SAFETY: the context is valid.
        let out = unsafe { imports::outgoing(raw, size) };
        if out.is_null() {
            return Err(if cfg!(ifunc_image) {
                TravelError::TooLarge
            } else {
                TravelError::NoGroup
            });
        }
        // SAFETY: the target gave `size` initialised bytes, which stay until the next of these calls: it needs `self`, too.
        Ok(unsafe { core::slice::from_raw_parts_mut(out, size) })
    }

    fn call(
        &mut self,
        import: impl FnOnce(*mut ifunc_abi::context::Context) -> u32,
    ) -> Result<(), TravelError> {
        let raw = self.raw.as_deref_mut().ok_or(TravelError::NoGroup)?;
        match import(raw) {
            0 => Ok(()),
            // A later target may have an error that this version does not know.
            code => Err(TravelError::from_code(code).unwrap_or(TravelError::Busy)),
        }
    }

    fn travel(&self) -> Option<&Travel> {
        let raw = self.raw.as_deref()?;
        // SAFETY: the context is valid; the target keeps the result as long as the invocation runs.
        unsafe { imports::travel(raw).as_ref() }
    }
}

/// The target's functions: see `ifunc_abi::symbols`.
#[cfg(ifunc_image)]
mod imports {
    use core::ffi::c_void;

    use ifunc_abi::context::{Context, Travel};

    pub(super) type PassOn = unsafe extern "C" fn(*mut Context, u32, *const c_void, usize) -> u32;

    unsafe extern "C" {
        fn __ifunc_travel(ctx: *mut Context) -> *const Travel;
        fn __ifunc_outgoing(ctx: *mut Context, size: usize) -> *mut u8;
        fn __ifunc_send(ctx: *mut Context, node: u32, main: *const c_void, len: usize) -> u32;
        fn __ifunc_forward(ctx: *mut Context, node: u32, main: *const c_void, len: usize) -> u32;
        fn __ifunc_reply(ctx: *mut Context, len: usize) -> u32;
        fn __ifunc_now() -> u64;
    }

    #[inline]
    pub(super) unsafe fn travel(ctx: *const Context) -> *const Travel {
        // SAFETY: the caller's promise; the function changes nothing.
        unsafe { __ifunc_travel(ctx.cast_mut()) }
    }

    #[inline]
    pub(super) unsafe fn outgoing(ctx: *mut Context, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_outgoing(ctx, size) }
    }

    #[inline]
    pub(super) unsafe extern "C" fn send(
        ctx: *mut Context,
        node: u32,
        main: *const c_void,
        len: usize,
    ) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_send(ctx, node, main, len) }
    }

    #[inline]
    pub(super) unsafe extern "C" fn forward(
        ctx: *mut Context,
        node: u32,
        main: *const c_void,
        len: usize,
    ) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_forward(ctx, node, main, len) }
    }

    #[inline]
    pub(super) unsafe fn reply(ctx: *mut Context, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_reply(ctx, len) }
    }

    #[inline]
    pub(super) fn now() -> u64 {
        // SAFETY: it may always be called.
        unsafe { __ifunc_now() }
    }
}

/// Outside of images, no target runs the ifunc: a unit test is no node.
#[cfg(not(ifunc_image))]
mod imports {
    use core::ffi::c_void;
    use std::sync::OnceLock;
    use std::time::Instant;

    use ifunc_abi::context::{Context, Travel};
    use ifunc_abi::travel::TravelError;

    pub(super) type PassOn = unsafe fn(*mut Context, u32, *const c_void, usize) -> u32;

    pub(super) unsafe fn travel(_: *const Context) -> *const Travel {
        core::ptr::null()
    }

    pub(super) unsafe fn outgoing(_: *mut Context, _: usize) -> *mut u8 {
        core::ptr::null_mut()
    }

    pub(super) unsafe fn send(_: *mut Context, _: u32, _: *const c_void, _: usize) -> u32 {
        TravelError::NoGroup.code()
    }

    pub(super) use send as forward;

    pub(super) unsafe fn reply(_: *mut Context, _: usize) -> u32 {
        TravelError::NoGroup.code()
    }

    pub(super) fn now() -> u64 {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let elapsed = BEGIN.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_context_is_in_no_group() {
        let ctx = &mut Context::detached();
        assert_eq!((ctx.node(), ctx.hops(), ctx.hops_left()), (None, 0, 0));
        assert!(ctx.peers().is_empty() && ctx.deadline().is_none());
        assert_eq!(ctx.reply(&1u64), Err(TravelError::NoGroup));
        assert_eq!(ctx.reply_bytes(b"x"), Err(TravelError::NoGroup));
        let before = ctx.now();
        assert!(ctx.now() >= before);
    }

    #[test]
    fn only_an_answer_is_written() {
        let ctx = &mut Context::detached();
        for onward in [Onward::Answer(7u64), Onward::Forwarded, Onward::Replied] {
            let result = finish_onward::<Fixed, _>(ctx, &onward);
            assert_eq!(result, ifunc_abi::context::MAIN_OK);
        }
    }
}
