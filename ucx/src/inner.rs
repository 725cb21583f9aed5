//! A worker, its handler and its operations under way, at the address that UCX's callbacks have.

use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ucx_sys::{Status, UCS_ERR_CANCELED, UCS_INPROGRESS, Ucx, ucp_rkey_h, ucp_worker_h, ucs_status_t};

use crate::buffer::{Buffer, Node};
use crate::handler::{Callback, Handler};
use crate::message::Data;
use crate::operation::Held;
use crate::shared::{Deferred, Handle, Shared};

/// An event that occurred while the handler was called.
type Late<H> = Box<dyn FnOnce(&Inner<H>, &mut H)>;

/// A worker. On the heap, and by its address alone: UCX has that, too.
pub(crate) struct Inner<H: Handler> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) raw: ucp_worker_h,
    /// The worker is the application's.
    is_attached: bool,
    /// Of a worker of the application's that several threads may use: the application's calls of UCX run callbacks then on any thread. Until
    /// it is unlocked, no other callback runs, and the handler, `under_way`, `orphaned`, `late` and `panic` are this thread's.
    gate: Option<Mutex<()>>,
    handler: UnsafeCell<H>,
    /// The handler is called.
    entered: Cell<bool>,
    late: RefCell<Vec<Late<H>>>,
    panic: RefCell<Option<Box<dyn Any + Send>>>,
    has_panicked: AtomicBool,
    /// The buffers of operations under way. Each has its index here.
    under_way: RefCell<Vec<*mut Node<H::Tag>>>,
    /// The worker is not used any more.
    pub(crate) closed: Cell<bool>,
    /// The worker is leaked when it is dropped.
    pub(crate) abandoned: Cell<bool>,
    /// The worker is the application's again: the end of the last operation ends this.
    pub(crate) orphaned: Cell<bool>,
    /// What UCX was given for each id of active messages, for as long as it may use it.
    pub(crate) registrations: RefCell<BTreeMap<u16, Box<Registration<H>>>>,
    /// Endpoints of this crate's: UCX has the worker's address as the argument of their error handlers.
    pub(crate) endpoints: Cell<usize>,
    /// Keys of peers' memory: UCX wants them back before the worker ends.
    pub(crate) keys: RefCell<Vec<ucp_rkey_h>>,
    /// Requests that were dropped while they were under way.
    requests: RefCell<Vec<(*mut c_void, Held)>>,
}

/// Whose a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Made by this crate.
    Crate,
    /// Made by the application.
    Application {
        /// Only the thread that made it may use it.
        is_single_threaded: bool,
    },
}

/// The argument of a callback that is called with more than the worker.
pub(crate) struct Registration<H: Handler> {
    pub(crate) inner: *const Inner<H>,
    /// The id of active messages.
    pub(crate) id: u16,
}

impl<H: Handler> Inner<H> {
    pub(crate) fn new(shared: Arc<Shared>, raw: ucp_worker_h, handler: H, owner: Owner) -> Self {
        let has_gate = matches!(
            owner,
            Owner::Application {
                is_single_threaded: false
            }
        );
        Self {
            is_attached: owner != Owner::Crate,
            shared,
            raw,
            gate: has_gate.then(Mutex::default),
            handler: UnsafeCell::new(handler),
            entered: Cell::new(false),
            late: RefCell::default(),
            panic: RefCell::default(),
            has_panicked: AtomicBool::new(false),
            under_way: RefCell::default(),
            closed: Cell::new(false),
            abandoned: Cell::new(false),
            orphaned: Cell::new(false),
            registrations: RefCell::default(),
            endpoints: Cell::new(0),
            keys: RefCell::default(),
            requests: RefCell::default(),
        }
    }

    #[inline]
    pub(crate) fn ucx(&self) -> &'static Ucx {
        self.shared.ucx
    }

    /// Whether the worker is the application's.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// UCX's status for the use of a worker that is closed.
    #[inline]
    pub(crate) fn is_open(&self) -> Result<(), Status> {
        if self.closed.get() {
            return Err(self.ucx().status(UCS_ERR_CANCELED));
        }
        Ok(())
    }

    /// Keeps other callbacks out, where they may run on other threads.
    #[inline]
    pub(crate) fn gate(&self) -> Option<MutexGuard<'_, ()>> {
        let gate = self.gate.as_ref()?;
        Some(gate.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs this while other callbacks are kept out.
    #[inline(always)]
    pub(crate) fn gated<T>(&self, run: impl FnOnce() -> T) -> T {
        let gate = self.gate();
        let result = run();
        // Most workers have none. Without the test, dropping it is a call.
        if let Some(gate) = gate {
            drop(gate);
        }
        result
    }

    /// The handler, for the thread that holds the worker, or passed the gate.
    pub(crate) fn handler(&self) -> *mut H {
        self.handler.get()
    }

    /// Whether the handler is called at this moment, or must not be called any more.
    #[inline]
    pub(crate) fn is_entered(&self) -> bool {
        self.entered.get()
    }

    /// From now on callbacks do not call the handler.
    pub(crate) fn shut(&self) {
        self.entered.set(true);
    }

    /// Delivers an event to the handler: now, or after the call of the handler that this one occurs in. Called by callbacks that
    /// passed the gate.
    pub(crate) fn deliver(&self, event: impl FnOnce(&Self, &mut H) + 'static) {
        if !self.entered.get() {
            self.enter(|handler, _| event(self, handler));
        } else if !self.closed.get() {
            self.late.borrow_mut().push(Box::new(event));
        }
    }

    pub(crate) fn callback(&self) -> Callback<'_, H> {
        Callback::new(self)
    }

    /// Calls the handler, and then delivers the events that occurred meanwhile. A panic is kept for [`resume`](Self::resume): it
    /// must not unwind into UCX. Called by callbacks that passed the gate, while the handler [is not called](Self::is_entered).
    #[inline]
    pub(crate) fn enter(&self, call: impl FnOnce(&mut H, &mut Callback<'_, H>)) {
        self.entered.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `entered` was not set, and every other reference to the handler borrows the worker, which is in use by the
            // call of UCX that runs this; or it holds the gate, which this thread has; or, of an application's worker of one thread, it does
            // not exist during the application's calls, by the promise of `attach`.
            let handler = unsafe { &mut *self.handler.get() };
            call(handler, &mut self.callback());
            while !self.late.borrow().is_empty() {
                for event in self.late.take() {
                    event(self, handler);
                }
            }
        }));
        if let Err(panic) = result {
            self.panic.borrow_mut().get_or_insert(panic);
            self.has_panicked.store(true, Ordering::Relaxed);
        }
        self.entered.set(false);
    }

    /// Goes on with a panic of the handler's, on the thread that uses the worker.
    #[inline]
    pub(crate) fn resume(&self) {
        if self.has_panicked.load(Ordering::Relaxed) {
            self.resume_panic();
        }
    }

    #[cold]
    fn resume_panic(&self) {
        let gate = self.gate();
        self.has_panicked.store(false, Ordering::Relaxed);
        let panic = self.panic.take();
        drop(gate);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
    }

    /// How many operations are under way that end with a call of the handler.
    pub(crate) fn under_way(&self) -> usize {
        let _gate = self.gate();
        self.under_way.borrow().len()
    }

    /// Whether no operation is under way, for a callback that has passed the gate.
    pub(crate) fn is_last(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// UCX has begun the operation of this buffer, and has not ended it.
    ///
    /// # Safety
    /// From a buffer, used by nothing but UCX, and not linked.
    pub(crate) unsafe fn link(&self, node: *mut Node<H::Tag>) {
        let mut under_way = self.under_way.borrow_mut();
        // SAFETY: the caller's promise.
        unsafe {
            (*node).index = under_way.len();
            (*node).beginning = Handle(std::ptr::null_mut());
        }
        under_way.push(node);
    }

    /// The operation has ended.
    ///
    /// # Safety
    /// The node is linked, or the `post` that began the operation has not linked it yet.
    pub(crate) unsafe fn unlink(&self, node: *mut Node<H::Tag>) {
        // SAFETY: the caller's promise: what is set is alive while UCX begins the operation. The node that takes this one's place is linked, too, and
        // alive.
        unsafe {
            if let Some(has_ended) = (*node).beginning.0.as_ref() {
                has_ended.set(true);
                (*node).beginning = Handle(std::ptr::null_mut());
                return;
            }
            let mut under_way = self.under_way.borrow_mut();
            let index = (*node).index;
            under_way.swap_remove(index);
            if let Some(&moved) = under_way.get(index) {
                (*moved).index = index;
            }
        }
    }

    /// Ends what was dropped without the worker's token.
    #[cold]
    pub(crate) fn run_deferred(&self) {
        for what in self.shared.take_deferred() {
            match what {
                Deferred::Endpoint(Handle(ep)) => self.drop_endpoint(ep),
                Deferred::Key(Handle(key)) => {
                    self.keys.borrow_mut().retain(|&known| known != key);
                    // SAFETY: unpacked by this worker, and used for the last time.
                    unsafe { self.ucx().ucp_rkey_destroy(key) };
                }
                // SAFETY: mapped in this worker's context, and used for the last time.
                Deferred::Memory(Handle(handle)) => unsafe {
                    self.ucx().ucp_mem_unmap(self.shared.context(), handle);
                },
                Deferred::Request(Handle(request), buffer) => {
                    self.requests.borrow_mut().push((request, buffer))
                }
            }
        }
        let ucx = self.ucx();
        self.requests.borrow_mut().retain(|(request, _)| {
            // SAFETY: a request of this worker that was not freed; it is freed when it has ended, and forgotten.
            unsafe {
                let is_under_way = ucx.ucp_request_check_status(*request) == UCS_INPROGRESS;
                if !is_under_way {
                    ucx.ucp_request_free(*request);
                }
                is_under_way
            }
        });
    }

    /// Gives the requests up that were dropped while they were under way, whose buffers UCX may use until the worker ends.
    pub(crate) fn take_requests(&self) -> Vec<Held> {
        let requests = self.requests.take().into_iter().map(|(request, buffer)| {
            // SAFETY: a request of this worker that was not freed, and used for the last time.
            unsafe { self.ucx().ucp_request_free(request) };
            buffer
        });
        requests.collect()
    }

    /// Whether there is something to [end](Self::run_deferred).
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.shared.has_deferred() || !self.requests.borrow().is_empty()
    }

    /// Frees the buffers of operations that a worker had under way which is gone.
    ///
    /// # Safety
    /// UCX does not use them any more.
    pub(crate) unsafe fn free_under_way(&self) {
        for node in self.under_way.take() {
            // SAFETY: linked, so from a buffer; UCX is done with it by the caller's promise.
            drop(unsafe { Buffer::from_raw(node) });
        }
    }

    #[inline]
    pub(crate) fn check(&self, status: ucs_status_t) -> Result<(), Status> {
        self.ucx().check(status)
    }

    /// Gives the data of a message back to UCX.
    #[inline]
    pub(crate) fn release(&self, data: Data) {
        self.check_owner("data of a message are", data.worker);
        if !self.closed.get() {
            // SAFETY: of a message that this worker's callback kept, and used for the last time.
            unsafe { self.ucx().ucp_am_data_release(self.raw, data.data.0) };
        }
    }

    /// # Panics
    /// If `what` belongs to another worker.
    #[inline]
    pub(crate) fn check_owner(&self, what: &str, worker: u64) {
        let is_own = worker == self.shared.serial;
        assert!(is_own, "{what} used with another worker than its own");
    }

    /// Destroys the keys of peers' memory: before the worker ends, or is left.
    pub(crate) fn drop_keys(&self) {
        for key in self.keys.take() {
            // SAFETY: unpacked by this worker, and used for the last time.
            unsafe { self.ucx().ucp_rkey_destroy(key) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Features, Library};
    use crate::message::Message;
    use crate::worker::Worker;

    struct Quiet;

    impl Handler for Quiet {
        type Tag = ();

        fn message(&mut self, _: &mut Callback<'_, Self>, _: Message<'_>) {}
    }

    #[test]
    fn an_operation_that_ends_while_it_begins_is_never_under_way() {
        let Ok(ucx) = Library::load() else {
            let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
            return assert!(!required, "UCX is required here");
        };
        let context = ucx.context(&ucx.config().unwrap(), Features::AM).unwrap();
        let worker: Worker<Quiet> = context.worker(Quiet).unwrap();
        let inner = worker.inner();
        let (has_ended, node) = (Cell::new(false), Buffer::new(1, ()).into_raw());
        // SAFETY: the node is from a buffer, used by nothing else, and linked where it is unlinked without a flag.
        unsafe {
            (*node).beginning = Handle((&raw const has_ended).cast_mut());
            inner.unlink(node);
            assert!(has_ended.get() && inner.is_last() && (*node).beginning.0.is_null());
            (*node).beginning = Handle((&raw const has_ended).cast_mut());
            inner.link(node);
            assert!(!inner.is_last() && (*node).beginning.0.is_null());
            inner.unlink(node);
            assert!(inner.is_last());
            drop(Buffer::from_raw(node));
        }
    }
}
