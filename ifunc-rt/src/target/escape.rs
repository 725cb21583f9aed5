//! Invocations that end early: what is contained, and what the host does afterwards.

use std::any::TypeId;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{FaultDetail, PanicDetail, Status};

use super::Host;
use super::argument::Argument;
use crate::policy::SourceInfo;
use crate::{Failure, StopHandle};

/// What ends an invocation alone, and what ends the process: set by
/// [`Policy::level`](crate::Policy::level).
///
/// At the first two levels every ifunc has the rights of the process. `SECURITY.md` states what each one is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// A panic of an ifunc, or of an export that it calls, ends the invocation. A fault ends the process, as any fault of its
    /// own does; before, a line on the standard error names the ifunc. The default.
    #[default]
    Panics,
    /// A fault of an ifunc ends the invocation, too: SIGSEGV, SIGBUS, SIGFPE, SIGILL (on AArch64 also SIGTRAP), a jump to where there is no code, a stack
    /// that overflows.
    Contained,
    /// Ifuncs run in *runner processes*, one for each key of the policy, and, for code without a signature, one for each
    /// connection: see [`RunnerOptions`](crate::RunnerOptions). Such a process has its own address space and confines itself before it
    /// runs anything: no files, no network, no other processes, bounded memory (seccomp, Landlock, resource limits). When it dies, its
    /// source is told why, and the next invocation starts another one.
    ///
    /// Target arguments that are integers, floats, or arrays and structs of those without padding, at most 64 KiB, are copied, and
    /// what the ifunc made of them takes their place when the invocation has ended well. Opaque types and those with interfaces stay
    /// where they are: functions of the host reach them. These run in the target, on copies of what their arguments refer to. They take and
    /// return numbers, `bool`, `&str`, and references and slices of such plain types, in an `Option`, and return those in an `Option` or a
    /// `Result`. An image that imports others, variables, libraries, or travels, is refused with the reason. An invocation waits for its process, and
    /// a tenant's process runs one at a time, on however many threads the target serves.
    Process,
}

/// What a target does after an invocation ended early: see [`TargetBuilder::on_escape`](crate::TargetBuilder::on_escape).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEscape {
    /// It goes on.
    Continue,
    /// It stops serving, as by [`StopHandle::stop`]. The source of the invocation receives the failure.
    Stop,
}

/// An invocation that ended early.
pub struct Escaped<'a> {
    ifunc: &'a str,
    source: &'a SourceInfo,
    why: Failure,
    detail: &'a [u8],
    argument: Argument,
    /// The target arguments are borrowed.
    _target: PhantomData<&'a mut c_void>,
}

impl Escaped<'_> {
    /// The ifunc.
    #[must_use]
    pub fn ifunc(&self) -> &str {
        self.ifunc
    }

    /// The source that sent the invocation.
    #[must_use]
    pub fn source(&self) -> &SourceInfo {
        self.source
    }

    /// Why it ended: [`Failure::Panic`], [`Failure::Fault`], [`Failure::Deadline`], [`Failure::StackLow`] or
    /// [`Failure::HostPanic`].
    #[must_use]
    pub fn why(&self) -> Failure {
        self.why
    }

    /// The message of a panic, the signal and the address of a fault, the limit of a deadline.
    #[must_use]
    pub fn detail(&self) -> String {
        let text = match self.why {
            Failure::Panic => PanicDetail::parse(self.detail).map(|panic| panic.message.to_owned()),
            Failure::Fault | Failure::Deadline => {
                FaultDetail::parse(self.detail).map(|fault| fault.text.to_owned())
            }
            _ => None,
        };
        text.unwrap_or_else(|| String::from_utf8_lossy(self.detail).into_owned())
    }

    /// What the target serves, as the invocation left it. `None`: it is of another type, or several threads share it.
    pub fn target_mut<T: 'static>(&mut self) -> Option<&mut T> {
        let is_own = !self.argument.is_shared() && self.argument.type_id() == TypeId::of::<T>();
        // SAFETY: `poll` borrows the target arguments, which are of this type; the invocation has ended, and this value is the only
        // way to them until the hook returns.
        is_own.then(|| unsafe { &mut *self.argument.target.cast::<T>() })
    }

    /// The target arguments as a pointer, of whatever type: for targets that serve [`RawArgs`](crate::RawArgs). Several
    /// threads may share them.
    #[must_use]
    pub fn target_ptr(&self) -> *mut c_void {
        self.argument.target
    }

    /// The same, if several threads share it.
    #[must_use]
    pub fn target_shared<T: Sync + 'static>(&self) -> Option<&T> {
        let is_shared = self.argument.is_shared() && self.argument.type_id() == TypeId::of::<T>();
        // SAFETY: `serve_shared` borrows the target arguments, which are of this type, for all threads.
        is_shared.then(|| unsafe { &*self.argument.target.cast::<T>() })
    }
}

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Escaped")
            .field("ifunc", &self.ifunc)
            .field("source", &self.source)
            .field("why", &self.why)
            .field("detail", &self.detail())
            .finish_non_exhaustive()
    }
}

/// What the host does after an invocation ended early.
pub(super) struct EscapeHook(Box<dyn Fn(&mut Escaped<'_>) -> AfterEscape + Send + Sync>);

impl EscapeHook {
    pub(super) fn new(hook: impl Fn(&mut Escaped<'_>) -> AfterEscape + Send + Sync + 'static) -> Self {
        Self(Box::new(hook))
    }
}

impl fmt::Debug for EscapeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EscapeHook")
    }
}

impl Host {
    /// Calls the hook, if the invocation ended early.
    #[cold]
    pub(super) fn escaped(&self, argument: &Argument, source: &SourceInfo, ifunc: &str, failed: &Failed) {
        let Some(EscapeHook(hook)) = &self.on_escape else {
            return;
        };
        let Status::Failed(
            why @ (Failure::Panic
            | Failure::Fault
            | Failure::Deadline
            | Failure::StackLow
            | Failure::HostPanic),
        ) = failed.status
        else {
            return;
        };
        let mut escaped = Escaped {
            ifunc,
            source,
            why,
            detail: &failed.detail,
            argument: *argument,
            _target: PhantomData,
        };
        // The panic of a hook would leave the invocation without an end.
        let after = catch_unwind(AssertUnwindSafe(|| hook(&mut escaped))).unwrap_or_else(|_| {
            tracing::error!(ifunc, source = source.connection, %why, "the hook `on_escape` panicked");
            AfterEscape::Stop
        });
        if after == AfterEscape::Stop {
            tracing::warn!(ifunc, source = source.connection, %why, "the target stops: an invocation ended early");
            StopHandle(self.doorbell.clone()).stop();
        }
    }
}
