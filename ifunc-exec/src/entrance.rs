//! The way into an image: where invocations enter an entry, and whether they may.
//!
//! An invocation loads the address of its entry anyway. To close an image, the runtime stores another address there, of a
//! function that reports that the invocation did not begin ([`turn_away`]). Then the thread waits until the image is open again,
//! or the invocation ends with the reason why it is not. So an invocation pays nothing for a door that is open.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use ifunc::host::GateState;
use ifunc_abi::refusal::Refusal;

use crate::InstalledEntry;
use crate::gate::turn_away;

/// The address that invocations of an entry enter at.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// What they load.
    address: AtomicPtr<c_void>,
    /// The [first side](GateState::first_side) of its invocations: whether code that it reaches may set how floats are computed.
    first_side: AtomicU8,
    /// The entry's own.
    entry: *const c_void,
}

// SAFETY: the address of code. It is bound to no thread, and only `Executor::run` uses it.
unsafe impl Send for Entrance {}
// SAFETY: as above.
unsafe impl Sync for Entrance {}

impl Entrance {
    /// An open one, of code that may set how floats are computed.
    pub(crate) fn new(entry: *const c_void) -> Self {
        Self {
            address: AtomicPtr::new(entry.cast_mut()),
            first_side: AtomicU8::new(GateState::first_side(true)),
            entry,
        }
    }

    /// Where to enter. What was stored before the image was opened, code that enters sees: on x86-64 a plain load suffices for that.
    #[inline(always)]
    pub(crate) fn address(&self) -> *const c_void {
        self.address.load(Ordering::Acquire)
    }

    /// What the call gate begins an invocation with.
    #[inline(always)]
    pub(crate) fn first_side(&self) -> u8 {
        self.first_side.load(Ordering::Relaxed)
    }

    /// States whether code that the entry reaches may set how floats are computed.
    pub(crate) fn set_float_control(&self, sets: bool) {
        self.first_side
            .store(GateState::first_side(sets), Ordering::Relaxed);
    }

    pub(crate) fn set_open(&self, is_open: bool) {
        let address = if is_open {
            self.entry
        } else {
            turn_away as *const c_void
        };
        self.address.store(address.cast_mut(), Ordering::Release);
    }
}

/// Whether invocations may enter an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// They may.
    Open,
    /// They wait, until a change of what the image imports is complete.
    Held,
    /// They may not, since an import is not there any more.
    Refused(Refusal),
}

/// The access to an image, for all of its entries.
#[derive(Debug)]
pub(crate) struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    access: Access,
    /// Whether code of the image, or what it calls without the call gate, may set how floats are computed.
    sets_float_control: bool,
    /// What the connections have bound.
    entries: Vec<Weak<InstalledEntry>>,
}

impl Default for Door {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Door {
    /// Of an image that may set how floats are computed, or not.
    pub(crate) fn new(sets_float_control: bool) -> Self {
        Self {
            state: Mutex::new(State {
                access: Access::Open,
                sets_float_control,
                entries: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens and closes this entry of the image with the others from now on.
    pub(crate) fn add(&self, entry: &Arc<InstalledEntry>) {
        let State {
            access,
            sets_float_control,
            entries,
        } = &mut *self.lock();
        entry.set_open(*access == Access::Open);
        entry.set_float_control(*sets_float_control);
        if entries.len() == entries.capacity() {
            entries.retain(|entry| entry.strong_count() > 0);
        }
        entries.push(Arc::downgrade(entry));
    }

    /// Number of entries that it opens and closes, or did.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.lock().entries.len()
    }

    /// Changes the access. Returns what it was.
    pub(crate) fn set(&self, access: Access) -> Access {
        let mut state = self.lock();
        let is_open = access == Access::Open;
        for entry in state.entries.iter().filter_map(Weak::upgrade) {
            entry.set_open(is_open);
        }
        let before = std::mem::replace(&mut state.access, access);
        self.changed.notify_all();
        before
    }

    /// What the image calls from now on without the call gate may set how floats are computed.
    pub(crate) fn expect_float_control(&self) {
        let mut state = self.lock();
        state.sets_float_control = true;
        for entry in state.entries.iter().filter_map(Weak::upgrade) {
            entry.set_float_control(true);
        }
    }

    /// Why invocations may not enter.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match &self.lock().access {
            Access::Refused(why) => Some(why.clone()),
            Access::Open | Access::Held => None,
        }
    }

    /// Waits while invocations are held.
    ///
    /// # Errors
    /// They may not enter.
    pub(crate) fn wait(&self) -> Result<(), Refusal> {
        let held = |state: &mut State| state.access == Access::Held;
        let state = self
            .changed
            .wait_while(self.lock(), held)
            .unwrap_or_else(PoisonError::into_inner);
        match &state.access {
            Access::Refused(why) => Err(why.clone()),
            Access::Open | Access::Held => Ok(()),
        }
    }
}
