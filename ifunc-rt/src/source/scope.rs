//! Scopes: waiting until everything has ended that was sent, and everything that that sent.

use std::sync::atomic::{AtomicU32, Ordering};

use ifunc_abi::status::Status;
use ifunc_abi::travel::ScopeReport;

use super::Source;
use super::call::Call;
use super::completion::explain_relayed;
use super::encoding::Encoding;
use super::error::Error;
use super::handle::Handle;

/// What is sent in it, and what that sends, is awaited by [`Source::finish`].
#[derive(Debug)]
pub struct Scope<'s> {
    source: &'s Source,
    number: u32,
}

/// How the invocations of a scope ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// Invocations that succeeded.
    pub executed: u64,
    /// Invocations that failed, or were not started.
    pub failed: u64,
    /// The first failures, in prose, with their nodes.
    pub failures: Vec<String>,
}

impl Source {
    /// Runs `send`, and waits until every invocation has ended that it sent in the [`Scope`], and every one that those
    /// sent, on whichever nodes of the [group](crate::group).
    ///
    /// ```no_run
    /// # mod spread { use ifunc::prelude::*; #[ifunc] pub fn visit(depth: u32, count: &mut u64, ctx: &mut Context) {
    /// #     *count += 1; for node in 0..ctx.peers().len() as u32 { if depth > 0 { let _ = ctx.send::<visit>(node, &(depth - 1)); } } } }
    /// let source = ifunc_rt::Source::connect("shm:node-0")?;
    /// let visit = source.register::<spread::visit>()?;
    /// let finished = source.finish(|scope| scope.send(&visit, &5))?;
    /// println!("{} visits, {} failed", finished.executed, finished.failed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Failures inside of the scope are counted, and the first ones returned: they are no error of this function.
    ///
    /// # Errors
    /// The error of `send`. [`Error::Incomplete`]: nodes died, and what was on them is not known. The deadline of
    /// [`SourceOptions::timeout`](super::SourceOptions::timeout) has passed; the target is gone.
    pub fn finish(&self, send: impl FnOnce(&Scope<'_>) -> Result<(), Error>) -> Result<Finished, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = loop {
            // 0 stands for no scope.
            match NEXT.fetch_add(1, Ordering::Relaxed) {
                0 => {}
                number => break number,
            }
        };
        let scope = Scope { source: self, number };
        let sent = send(&scope);
        let deadline = self.shared.deadline();
        let request = self
            .shared
            .request(deadline, FINISH, |connection| connection.try_finish(number));
        sent?;
        let completion = request?;
        let report = match completion.status {
            Status::Executed => ScopeReport::parse(completion.bytes()),
            status => return Err(explain_relayed(FINISH, None, status, completion.bytes())),
        };
        let report = report.ok_or_else(|| Error::PeerGone {
            what: FINISH.into(),
            why: "its report of a scope is malformed".into(),
        })?;
        let ScopeReport {
            executed,
            failed,
            lost,
            failures,
        } = report;
        if !lost.is_empty() {
            return Err(Error::Incomplete {
                lost,
                executed,
                failed,
            });
        }
        let explain = |failure: ifunc_abi::travel::ScopeFailure| {
            let what = "an invocation of the scope";
            explain_relayed(what, Some(failure.node), failure.status, &failure.detail).to_string()
        };
        Ok(Finished {
            executed,
            failed,
            failures: failures.into_iter().map(explain).collect(),
        })
    }
}

impl Scope<'_> {
    /// Sends an invocation in the scope, without waiting for its outcome.
    ///
    /// # Errors
    /// As [`Handle::send`].
    ///
    /// # Panics
    /// If the handle is of another source.
    pub fn send<E: Encoding>(&self, handle: &Handle<E>, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.own(handle).send(payload)
    }

    /// Sends an invocation in the scope, and returns a call that awaits its own answer.
    ///
    /// # Errors
    /// As [`Handle::call`].
    ///
    /// # Panics
    /// If the handle is of another source.
    pub fn call<E: Encoding>(
        &self,
        handle: &Handle<E>,
        payload: &E::Payload<'_>,
    ) -> Result<Call<E::Answer>, Error> {
        self.own(handle).call(payload)
    }

    fn own<E: Encoding>(&self, handle: &Handle<E>) -> Handle<E> {
        assert!(
            handle.is_of(self.source),
            "the handle `{}` is of another source than the scope",
            handle.name()
        );
        handle.in_scope(self.number)
    }
}

/// Name of the request in errors.
const FINISH: &str = "finish";
