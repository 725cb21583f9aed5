//! What a host offers to invocations that travel on: the way from the imports to the host.
//!
//! A thread's gate holds the services, if its host is a node of a group. They know which invocation runs on that thread. So an
//! invocation that does not travel costs nothing more.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use ifunc_abi::context::{Context, Travel};
use ifunc_abi::travel::{NO_DEADLINE, NO_NODE, TravelError};
use rustix::time::{ClockId, clock_gettime};

use crate::InstalledEntry;
use crate::gate::services;

/// What a node offers to the invocations of one thread. The thread that runs an invocation calls it, while it runs.
pub trait Services: fmt::Debug + Send + Sync {
    /// Where the invocation is on its way, valid until it ends; `None`: it does not travel.
    fn travel(&self) -> Option<*const Travel>;

    /// Memory for the next payload: initialised, aligned to 64 bytes, and valid until the next call. Null: `size` exceeds a
    /// limit.
    fn outgoing(&self, size: usize) -> *mut u8;

    /// Sends the first `len` bytes of the outgoing memory to an entry of the image that runs.
    ///
    /// # Errors
    /// It is not sent.
    fn send(&self, to: Destination<'_>, len: usize) -> Result<(), TravelError>;

    /// As [`send`](Self::send), with the obligation to answer.
    ///
    /// # Errors
    /// It is not sent: the invocation keeps its obligation.
    fn forward(&self, to: Destination<'_>, len: usize) -> Result<(), TravelError>;

    /// Sends the first `len` bytes of the outgoing memory as a partial answer.
    ///
    /// # Errors
    /// It is not sent.
    fn reply(&self, len: usize) -> Result<(), TravelError>;
}

/// Where a running invocation sends another one.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The node.
    pub node: u32,
    /// The entry that runs.
    pub from: &'a InstalledEntry,
    /// The index of the entry to be invoked, in the same image.
    pub entry: usize,
}

/// Nanoseconds on the clock of `__ifunc_now`.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock begins when the host starts.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// `Travel` is shared between threads as plain data.
struct NoGroup(Travel);

// SAFETY: immutable; its list is empty.
unsafe impl Sync for NoGroup {}

static NO_GROUP: NoGroup = NoGroup(Travel {
    size: size_of::<Travel>() as u32,
    node: NO_NODE,
    hops: 0,
    hops_left: 0,
    peer_count: 0,
    deadline: NO_DEADLINE,
    peers: ptr::null(),
});

/// `__ifunc_travel`.
pub(crate) extern "C" fn travel(_: *mut Context) -> *const Travel {
    let travel = services().and_then(|services| through_gate(services, |services| services.travel()));
    travel.unwrap_or(&raw const NO_GROUP.0)
}

/// `__ifunc_outgoing`.
pub(crate) extern "C" fn outgoing(_: *mut Context, size: usize) -> *mut u8 {
    match services() {
        Some(services) => through_gate(services, |services| services.outgoing(size)),
        None => ptr::null_mut(),
    }
}

/// `__ifunc_send`.
///
/// # Safety
/// `ctx` is null or the context of the invocation that runs.
pub(crate) unsafe extern "C" fn send(ctx: *mut Context, node: u32, main: *const c_void, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { dispatch(ctx, node, main, |services, to| services.send(to, len)) }
}

/// `__ifunc_forward`.
///
/// # Safety
/// As for [`send`].
pub(crate) unsafe extern "C" fn forward(
    ctx: *mut Context,
    node: u32,
    main: *const c_void,
    len: usize,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { dispatch(ctx, node, main, |services, to| services.forward(to, len)) }
}

/// `__ifunc_reply`.
pub(crate) extern "C" fn reply(_: *mut Context, len: usize) -> u32 {
    match services() {
        Some(services) => code(through_gate(services, |services| services.reply(len))),
        None => TravelError::NoGroup.code(),
    }
}

/// `__ifunc_now`.
pub(crate) extern "C" fn clock() -> u64 {
    crate::gate::on_host_side(now)
}

/// Calls a service with the entry of the running image at this address.
///
/// # Safety
/// As for [`send`].
unsafe fn dispatch(
    ctx: *mut Context,
    node: u32,
    main: *const c_void,
    call: impl FnOnce(&dyn Services, Destination<'_>) -> Result<(), TravelError>,
) -> u32 {
    let Some(services) = services() else {
        return TravelError::NoGroup.code();
    };
    // SAFETY: the caller's promise: `ImageExecutor::run` stored the entry, which lives while it runs.
    let from = unsafe { ctx.as_ref().map(|ctx| &*ctx.host.cast::<InstalledEntry>()) };
    let to = from.and_then(|from| {
        let entry = from.image().entry_at(main)?;
        Some(Destination { node, from, entry })
    });
    let Some(to) = to else {
        return TravelError::NoEntry.code();
    };
    code(through_gate(services, |services| call(services, to)))
}

/// Calls the host. Its panic ends the invocation, as that of an exported function does.
fn through_gate<R>(services: &Arc<dyn Services>, call: impl FnOnce(&dyn Services) -> R) -> R {
    ifunc::host::through_gate(|| call(&**services))
}

fn code(result: Result<(), TravelError>) -> u32 {
    result.map_or_else(TravelError::code, |()| 0)
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{ImageParts, ImportFlags, ImportPart};
    use ifunc_abi::status::{Failure, Status};

    use super::*;
    use crate::arch::testing::code;
    use crate::tests::{executor, image, install};
    use crate::{Executor as _, ImageExecutor, Invocation};

    #[test]
    fn without_a_group_nothing_travels() {
        // SAFETY: the result is the static above.
        let travel = unsafe { &*travel(ptr::null_mut()) };
        assert_eq!((travel.node, travel.peer_count), (NO_NODE, 0));
        assert_eq!(travel.size as usize, size_of::<Travel>());
        assert!(outgoing(ptr::null_mut(), 8).is_null());
        let no_group = TravelError::NoGroup.code();
        // SAFETY: null is a context.
        let sent = unsafe { send(ptr::null_mut(), 0, ptr::null(), 0) };
        assert_eq!((sent, reply(ptr::null_mut(), 0)), (no_group, no_group));
    }

    #[test]
    fn both_clocks_count_the_nanoseconds_of_the_monotonic_one() {
        let (began, before) = (std::time::Instant::now(), [now(), clock()]);
        while clock() - before[0] < 2_000_000 {
            assert!(began.elapsed().as_secs() < 30, "the clock stands still");
        }
        let passed = [now(), clock()].map(|now| now - before[0]);
        let most = began.elapsed().as_nanos() as u64;
        assert!(before[0] > 1 && before[1] >= before[0]);
        assert!(
            passed[0] >= 2_000_000 && passed[1] >= passed[0] && passed[1] <= most,
            "{passed:?}"
        );
    }

    /// Serves invocations that travel nowhere.
    #[derive(Debug)]
    struct Nowhere;

    impl Services for Nowhere {
        fn travel(&self) -> Option<*const Travel> {
            None
        }

        fn outgoing(&self, _: usize) -> *mut u8 {
            std::ptr::null_mut()
        }

        fn send(&self, _: Destination<'_>, _: usize) -> Result<(), TravelError> {
            Err(TravelError::NoGroup)
        }

        fn forward(&self, _: Destination<'_>, _: usize) -> Result<(), TravelError> {
            Err(TravelError::NoGroup)
        }

        fn reply(&self, _: usize) -> Result<(), TravelError> {
            Err(TravelError::NoGroup)
        }
    }

    #[test]
    fn an_address_that_is_no_entry_of_the_image_is_not_sent_to() {
        let sends = |is_inside: bool| {
            let (rx, slot) = code::sends(is_inside);
            ImageParts {
                slot: Some(slot),
                imports: vec![ImportPart {
                    symbol: "__ifunc_send".into(),
                    flags: ImportFlags::NONE,
                    fingerprint: 0,
                }],
                ..image("sends", rx)
            }
        };
        let (executor, _) = executor(1 << 16, 4);
        let mut thread = executor.thread().unwrap();
        thread.set_services(Some(Arc::new(Nowhere)));
        let mut code_of = |is_inside| {
            let image = install(&executor, &sends(is_inside)).unwrap();
            let entry = ImageExecutor::entries(&image).next().unwrap();
            // SAFETY: the image takes no payload and no target arguments.
            let invocation =
                unsafe { Invocation::new(&*entry, [].as_ptr(), 0, std::ptr::null_mut::<c_void>(), 1) };
            let failed = ImageExecutor::run(&mut thread.session(), || invocation, None).unwrap_err();
            assert_eq!(failed.status, Status::Failed(Failure::UnknownResult));
            String::from_utf8(failed.detail).unwrap()
        };
        let own = code_of(false);
        assert!(
            own.starts_with(&format!("code {};", TravelError::NoGroup.code())),
            "{own}"
        );
        let inside = code_of(true);
        assert!(
            inside.starts_with(&format!("code {};", TravelError::NoEntry.code())),
            "{inside}"
        );
        assert_eq!(TravelError::NoEntry.to_string(), "the image has no such entry");
    }
}
