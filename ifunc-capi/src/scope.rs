//! Scopes: waiting for everything that was sent, and what that sent.

use std::ffi::{c_int, c_void};

use ifunc_rt::{Scope, Source};

use crate::call::ifunc_call;
use crate::error::record;
use crate::guard::{Fault, User, enter};
use crate::handle::ifunc_handle;
use crate::source::ifunc_source;
use crate::status::ifunc_status;

/// What is sent in it is awaited by `ifunc_source_finish`, which makes it. Only the function that gets it may use it.
pub struct ifunc_scope {
    /// A `Scope` that outlives it.
    scope: *const c_void,
    source: Source,
}

/// How the invocations of a scope ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ifunc_finished {
    /// Invocations that succeeded.
    pub executed: u64,
    /// Invocations that failed, or were not started.
    pub failed: u64,
}

/// Sends the invocations of a scope. Returns 0; any other value makes `ifunc_source_finish` return IFUNC_STATUS_CANCELLED.
pub type ifunc_scope_function =
    Option<unsafe extern "C" fn(scope: *mut ifunc_scope, user: *mut c_void) -> c_int>;

/// Calls `send` once, with a scope and `user`, and waits until every invocation has ended that it sent in the scope, and every one that
/// those sent, on whichever nodes of the group. Failed invocations are counted in `finished`, and are no error; the texts of the first are
/// then what `ifunc_rt_last_error` returns, one per line. `finished` and `user` may be null; `source` and `send` must not be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_finish(
    source: *const ifunc_source,
    send: ifunc_scope_function,
    user: *mut c_void,
    finished: *mut ifunc_finished,
) -> ifunc_status {
    enter(|| {
        write_to!(finished, ifunc_finished::default());
        let source = &object!(source).source;
        let Some(send) = send else {
            return Err(Fault::new(ifunc_status::NullArgument, "`send` is a null pointer"));
        };
        let user = User::new(user);
        let mut sent = 0;
        let ended = source.finish(|scope: &Scope<'_>| {
            let mut scope = ifunc_scope {
                scope: std::ptr::from_ref(scope).cast(),
                source: source.clone(),
            };
            // SAFETY: callers in C pass a function of this type, which returns before this closure does.
            sent = unsafe { send(&raw mut scope, user.get()) };
            Ok(())
        })?;
        write_to!(
            finished,
            ifunc_finished {
                executed: ended.executed,
                failed: ended.failed,
            }
        );
        if !ended.failures.is_empty() {
            record(Fault::new(ifunc_status::Failed, ended.failures.join("\n")));
        }
        if sent != 0 {
            return Err(Fault::new(
                ifunc_status::Cancelled,
                format!("`send` returned {sent}"),
            ));
        }
        Ok(ifunc_status::Ok)
    })
}

impl ifunc_scope {
    /// The scope, and whether a handle belongs to its source.
    fn of(&self, handle: &ifunc_handle) -> Result<&Scope<'_>, Fault> {
        if !handle.handle.is_of(&self.source) {
            return Err(Fault::invalid(format!(
                "the handle `{}` is of another source than the scope",
                handle.handle.name()
            )));
        }
        // SAFETY: `ifunc_source_finish` made it of a `Scope` that lives while the caller's function may use it.
        Ok(unsafe { &*self.scope.cast() })
    }
}

/// Sends an invocation in a scope, as `ifunc_handle_send` does. The handle is of the source of the scope. `scope` and `handle` must not be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_scope_send(
    scope: *const ifunc_scope,
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
) -> ifunc_status {
    enter(|| {
        let (scope, handle) = (object!(scope), object!(handle));
        scope.of(handle)?.send(&handle.handle, bytes!(args, n))?;
        Ok(ifunc_status::Ok)
    })
}

/// Sends an invocation in a scope, as `ifunc_handle_call` does. The handle is of the source of the scope. `scope`, `handle` and `call` must
/// not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_scope_call(
    scope: *const ifunc_scope,
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    call: *mut *mut ifunc_call,
) -> ifunc_status {
    enter(|| {
        let out = out!(call);
        let (scope, handle) = (object!(scope), object!(handle));
        let call = scope.of(handle)?.call(&handle.handle, bytes!(args, n))?;
        Ok(out.set(ifunc_call::new(call, handle.timeout)))
    })
}
