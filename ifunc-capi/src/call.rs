//! Calls: what waits for an answer.

use std::ffi::c_void;
use std::time::Duration;

use ifunc_rt::{Call, Error};

use crate::guard::{Fault, duration, enter, enter_or};
use crate::status::ifunc_status;

/// An invocation whose answer is awaited. One thread at a time may use it.
pub struct ifunc_call {
    state: State,
    /// How long it waits, unless it is told.
    timeout: Duration,
}

/// How far a call is.
enum State {
    Waits(Call<Vec<u8>>),
    Answered(Vec<u8>),
    Failed(Fault),
}

impl ifunc_call {
    pub(crate) fn new(call: Call<Vec<u8>>, timeout: Duration) -> Self {
        Self {
            state: State::Waits(call),
            timeout,
        }
    }

    /// The status of a call that has ended; `None`: it waits.
    fn ended(&self) -> Option<Result<ifunc_status, Fault>> {
        match &self.state {
            State::Waits(_) => None,
            State::Answered(_) => Some(Ok(ifunc_status::Ok)),
            State::Failed(fault) => Some(Err(fault.clone())),
        }
    }

    fn end(&mut self, result: Result<Vec<u8>, Error>) -> Result<ifunc_status, Fault> {
        match result {
            Ok(answer) => {
                self.state = State::Answered(answer);
                Ok(ifunc_status::Ok)
            }
            // The wait ended, and not the call.
            Err(error @ (Error::Timeout { .. } | Error::NoThread { .. })) => Err(error.into()),
            Err(error) => {
                let fault = Fault::from(error);
                self.state = State::Failed(fault.clone());
                Err(fault)
            }
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<ifunc_status, Fault> {
        let State::Waits(call) = &mut self.state else {
            return self.ended().unwrap_or(Ok(ifunc_status::Ok));
        };
        let result = call.wait_timeout(timeout);
        self.end(result)
    }
}

/// Waits for the answer, at most the timeout of the handle. After IFUNC_STATUS_TIMEOUT the caller may wait again. A call that has ended
/// returns the same status every time. `call` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_wait(call: *mut ifunc_call) -> ifunc_status {
    enter(|| {
        let call = object_mut!(call);
        call.wait(call.timeout)
    })
}

/// As `ifunc_call_wait`, but waits at most `timeout_ns` nanoseconds. `call` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_wait_for(call: *mut ifunc_call, timeout_ns: u64) -> ifunc_status {
    enter(|| object_mut!(call).wait(duration(timeout_ns)))
}

/// As `ifunc_call_wait`, but does not wait: IFUNC_STATUS_IN_PROGRESS if there is no answer yet. `call` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_test(call: *mut ifunc_call) -> ifunc_status {
    enter(|| {
        let call = object_mut!(call);
        let State::Waits(waits) = &mut call.state else {
            return call.ended().unwrap_or(Ok(ifunc_status::Ok));
        };
        match waits.try_wait() {
            None => Ok(ifunc_status::InProgress),
            Some(result) => call.end(result),
        }
    })
}

/// The answer of a call that ended with IFUNC_STATUS_OK, valid until the call is destroyed; otherwise null, also if `call` is null. `len`
/// may be null; otherwise it receives the number of bytes. The pointer of an empty answer is not null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_answer(call: *const ifunc_call, len: *mut usize) -> *const c_void {
    enter_or(std::ptr::null(), || {
        write_to!(len, 0);
        match &object!(call).state {
            State::Waits(_) => Err(Fault::new(
                ifunc_status::InProgress,
                "this call has not ended: wait for it first",
            )),
            State::Failed(fault) => Err(fault.clone()),
            State::Answered(answer) => {
                write_to!(len, answer.len());
                Ok(answer.as_ptr().cast())
            }
        }
    })
}

/// Frees a call, and drops its answer. An invocation that was sent still runs. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_destroy(call: *mut ifunc_call) {
    destroy!(call);
}

/// Waits for several calls, at most `timeout_ns` nanoseconds for all: until each has ended, well or not. Returns the status of the first
/// that did not end well; IFUNC_STATUS_TIMEOUT if one has not ended. `calls` may be null if `count` is 0; null elements are skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_call_wait_all(
    calls: *const *mut ifunc_call,
    count: usize,
    timeout_ns: u64,
) -> ifunc_status {
    enter(|| {
        if calls.is_null() && count > 0 {
            return Err(Fault::new(
                ifunc_status::NullArgument,
                "`calls` is a null pointer",
            ));
        }
        let timeout = duration(timeout_ns);
        let began = std::time::Instant::now();
        let mut first = Ok(ifunc_status::Ok);
        for at in 0..count {
            // SAFETY: callers in C pass an array of `count` pointers, each null or of a call that nothing else uses.
            let Some(call) = (unsafe { (*calls.add(at)).as_mut() }) else {
                continue;
            };
            let waited = call.wait(timeout.saturating_sub(began.elapsed()));
            first = first.and(waited);
        }
        first
    })
}
