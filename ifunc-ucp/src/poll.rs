//! Polling a buffer for a frame.

use std::alloc::Layout;
use std::ffi::c_void;

use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Failure, FaultDetail, PanicDetail, Rejection, Status};
use ifunc_exec::InstalledEntry;

use crate::frame::{self, Head, Seen};
use crate::images::{self, Code, Here, Known, NoCode};
use crate::report;
use crate::slot::Slot;
use crate::sum::Stripes;

/// What became of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// A message was taken out and ran.
    Ran,
    /// There is no whole message.
    Nothing,
    /// A message was taken out, and did not run to its end.
    Canceled,
    /// A message was taken out, whose code is of another machine.
    Unsupported,
    /// There is a message, and nothing to run it with now.
    NoResource,
}

/// Runs the message in a slot, if there is one.
///
/// # Safety
/// The process trusts the code of all who can write to the slot. `target_args` are what that code takes.
#[inline]
pub(crate) unsafe fn poll(slot: Slot, target_args: *mut c_void) -> Polled {
    let mut seen = Head::read(slot);
    if let Seen::Storing(stripes) = seen {
        // A thread that ends adds nothing before the frame is whole.
        seen = images::here(|here| here.storing.follow(slot, stripes)).unwrap_or(Seen::Nothing);
    }
    match seen {
        Seen::Nothing | Seen::Storing(_) => Polled::Nothing,
        // SAFETY: the caller's promise.
        Seen::Head(head) => unsafe { arrived(slot, &head, target_args) },
        seen => refuse_head(slot, seen),
    }
}

#[cold]
fn refuse_head(slot: Slot, seen: Seen) -> Polled {
    match seen {
        Seen::TooLong(Some(len)) => report::refused(format_args!(
            "a message of {len} bytes was refused: its buffer has {}",
            slot.len()
        )),
        Seen::TooLong(None) => report::refused(format_args!(
            "a message was refused: its buffer has {} bytes",
            slot.len()
        )),
        _ => report::refused(format_args!("a message was refused: its head is malformed")),
    }
    frame::forget(slot);
    Polled::Canceled
}

/// # Safety
/// As [`poll`].
#[inline]
unsafe fn arrived(slot: Slot, head: &Head, target_args: *mut c_void) -> Polled {
    // SAFETY: the caller's promise.
    let polled = images::here(|here| unsafe { arrived_here(here, slot, head, target_args) });
    // A thread that ends runs nothing any more.
    polled.unwrap_or(Polled::NoResource)
}

/// # Safety
/// As [`poll`].
#[inline]
unsafe fn arrived_here(here: &Here, slot: Slot, head: &Head, target_args: *mut c_void) -> Polled {
    let code = match whole(here, slot, head) {
        Ok(code) => code,
        Err(polled) => return polled,
    };
    if !here.may_nest() {
        report::refused(format_args!(
            "a message waits: too many invocations are inside of one another"
        ));
        return Polled::NoResource;
    }
    let known = match code {
        Code::Known(known) => known,
        Code::New(bytes) => match here.install(head.image_sum, bytes) {
            Ok(known) => known,
            Err(refusal) => {
                report::refused(format_args!(
                    "a message was refused: {}: {}",
                    refusal.reason, refusal.detail
                ));
                take(here, slot, head);
                return match refusal.reason {
                    Rejection::Architecture | Rejection::CpuFeature | Rejection::AbiVersion => {
                        Polled::Unsupported
                    }
                    _ => Polled::Canceled,
                };
            }
        },
    };
    // SAFETY: the caller's promise.
    unsafe { run(here, slot, head, &known, target_args) }
}

/// The code of a frame that has arrived whole.
#[inline]
fn whole(here: &Here, slot: Slot, head: &Head) -> Result<Code, Polled> {
    let Some(sum) = head.stated(slot) else {
        return Err(Polled::Nothing);
    };
    if is_sum_of(here, slot, head, sum) {
        match here.find(slot, head) {
            Ok(code) => return Ok(code),
            Err(NoCode::Differs) => {}
            Err(NoCode::NoMemory) => return Err(Polled::NoResource),
        }
    }
    if !here.doubts.is_too_old(slot, head) {
        return Err(Polled::Nothing);
    }
    report::refused(format_args!("a message was refused: it was changed on its way"));
    take(here, slot, head);
    Err(Polled::Canceled)
}

/// Whether this is the sum of a frame.
#[inline]
fn is_sum_of(here: &Here, slot: Slot, head: &Head, sum: u64) -> bool {
    let known = head.has_parts().then(|| here.storing.take(slot)).flatten();
    let known = known.filter(|known| known.count() <= head.stripes());
    known.is_some_and(|known| head.sum(slot, known) == sum) || head.sum(slot, Stripes::new()) == sum
}

/// Takes a frame out of its slot.
#[inline]
fn take(here: &Here, slot: Slot, head: &Head) {
    here.doubts.forget(slot);
    head.take(slot);
}

/// Takes a frame out of its slot and runs it.
///
/// # Safety
/// As [`poll`].
#[inline]
unsafe fn run(here: &Here, slot: Slot, head: &Head, known: &Known, target_args: *mut c_void) -> Polled {
    let Some(entry) = known.entry(head.entry) else {
        report::refused(format_args!(
            "a message was refused: its code has no entry {}",
            head.entry
        ));
        take(here, slot, head);
        return Polled::Canceled;
    };
    let (payload, len) = (slot.address(head.layout.payload_at), head.layout.payload_len);
    let copy;
    let payload = match entry.is_aligned(payload) {
        true => payload,
        false => {
            // SAFETY: `len` bytes of the slot.
            let Some(aligned) = (unsafe { Aligned::copy(payload, len, entry.payload_align) }) else {
                return Polled::NoResource;
            };
            copy = aligned;
            copy.at
        }
    };
    // First: what runs may cause the next message to be put here.
    take(here, slot, head);
    // SAFETY: the caller's promise; the payload is in the slot, or a copy of this function's, and aligned.
    match unsafe { here.run(entry, payload, len, target_args) } {
        Ok(()) => Polled::Ran,
        Err(failed) => {
            explain(entry, &failed);
            Polled::Canceled
        }
    }
}

#[cold]
fn explain(entry: &InstalledEntry, failed: &Failed) {
    let name = &entry.name;
    match failed.status {
        Status::Failed(Failure::Panic) => {
            if let Some(panic) = PanicDetail::parse(&failed.detail) {
                let place = match panic.file {
                    "" => String::new(),
                    file => format!(" at {}:{}", file.escape_debug(), panic.line),
                };
                let message = panic.message.escape_debug();
                return report::refused(format_args!("`{name}` panicked{place}: {message}"));
            }
        }
        Status::Failed(why @ (Failure::Fault | Failure::Deadline)) => {
            if let Some(fault) = FaultDetail::parse(&failed.detail) {
                return report::refused(format_args!("`{name}` failed: {why}: {}", fault.text));
            }
        }
        _ => {}
    }
    let detail = String::from_utf8_lossy(&failed.detail);
    report::refused(format_args!(
        "`{name}` failed: {}: {}",
        failed.status,
        detail.escape_debug()
    ));
}

/// A copy of a payload, for code that asks for more alignment than the application's buffer has.
struct Aligned {
    at: *mut u8,
    layout: Layout,
}

impl Aligned {
    /// # Safety
    /// `from` is readable for `len` bytes.
    #[cold]
    unsafe fn copy(from: *const u8, len: usize, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), align).ok()?;
        // SAFETY: not of size zero.
        let at = unsafe { std::alloc::alloc(layout) };
        if at.is_null() {
            return None;
        }
        // SAFETY: `len` bytes each; the copy is new.
        unsafe { libc::memcpy(at.cast(), from.cast(), len) };
        Some(Self { at, layout })
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { std::alloc::dealloc(self.at, self.layout) };
    }
}
