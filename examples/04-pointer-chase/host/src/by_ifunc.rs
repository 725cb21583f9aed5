//! The source sends the chaser itself, which goes from server to server.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use example_04_pointer_chase_ifuncs::{Walk, follow};
use example_servers::Failure;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use ifunc_rt::{Call, Handle, Source};

use crate::measure::{Chaser, Ended, Plan};
use crate::permutation::Cut;
use crate::waiting::{EventLoop, Spin};

/// Handles of the chaser, one for each server.
pub struct Ifunc {
    servers: Vec<Handle<follow>>,
    event_loop: EventLoop,
    cut: Cut,
    depth: u64,
    under_way: FuturesUnordered<Chase>,
}

impl Ifunc {
    /// Chases by ifuncs.
    ///
    /// # Errors
    /// There is no image of the chaser, or too many files are open.
    pub fn new(servers: &[Source], plan: &Plan, spin: Spin) -> Result<Self, Failure> {
        let handles = servers.iter().map(Source::register::<follow>);
        Ok(Self {
            servers: handles.collect::<Result<_, _>>()?,
            event_loop: EventLoop::new(servers, spin.source)?,
            cut: plan.cut,
            depth: plan.depth,
            under_way: FuturesUnordered::new(),
        })
    }
}

impl Chaser for Ifunc {
    fn begin(&mut self, slot: usize, at: u64) -> Result<(), Failure> {
        let server = &self.servers[self.cut.place(at).0 as usize];
        let left = self.depth;
        let call = server.call(&Walk { at, left })?;
        self.under_way.push(Chase { slot, call });
        Ok(())
    }

    fn wait(&mut self) -> Result<Ended, Failure> {
        // One call waits by itself. Of several, at several servers, any may end first.
        let ended = if self.under_way.len() > 1 {
            let under_way = &mut self.under_way;
            self.event_loop
                .wait(|context| under_way.poll_next_unpin(context))?
        } else {
            let last = mem::take(&mut self.under_way).into_iter().next();
            last.map(|Chase { slot, call }| call.wait().map(|end| (slot, end)))
        };
        Ok(ended.ok_or("no chase is under way")??)
    }
}

/// A chase that is under way.
struct Chase {
    slot: usize,
    call: Call<u64>,
}

impl Future for Chase {
    type Output = Result<Ended, ifunc_rt::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let end = ready!(Pin::new(&mut self.call).poll(context));
        Poll::Ready(end.map(|end| (self.slot, end)))
    }
}
