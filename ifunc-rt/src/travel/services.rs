//! What running code may use of its node: the services that the executor's imports call.

use std::cell::RefCell;
use std::sync::Arc;

use ifunc_abi::context::Travel;
use ifunc_abi::travel::TravelError;
use ifunc_exec::InstalledEntry;
use ifunc_exec::services::{Destination, Services};
use ifunc_proto::buffer::AlignedBuffer;

use super::{ProtocolNode, Travels, Visit};

thread_local! {
    /// The invocation that runs on this thread and may travel; the innermost, where host functions serve.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// Memory for the next invocation that sends.
    static SPARE: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::default());
}

/// Memory for payloads that stays allocated.
const KEPT: usize = 64 << 10;

struct Current {
    /// Of whose node it is an invocation.
    owner: *const Travels,
    visit: Box<Visit>,
    /// What the invocation writes to send.
    outgoing: AlignedBuffer,
    /// What the invocation was shown, at an address that stays.
    shown: Option<Box<Shown>>,
}

struct Shown {
    travel: Travel,
    peers: Vec<u32>,
}

/// The invocation around the one that runs. It is restored if a hook of the host panics, too.
struct Outer(Option<Current>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Runs an invocation, which may use the node meanwhile.
pub(crate) fn during<R>(
    travels: &Arc<Travels>,
    visit: Box<Visit>,
    run: impl FnOnce() -> R,
) -> (Box<Visit>, R) {
    let current = Current {
        owner: Arc::as_ptr(travels),
        visit,
        outgoing: SPARE.take(),
        shown: None,
    };
    let outer = Outer(CURRENT.replace(Some(current)));
    let result = run();
    let current = CURRENT.take();
    drop(outer);
    let Some(current) = current else {
        unreachable!("an invocation that runs inside of this one restores it");
    };
    let Current {
        visit, mut outgoing, ..
    } = current;
    outgoing.shrink(KEPT);
    SPARE.set(outgoing);
    (visit, result)
}

impl Travels {
    /// Calls with the invocation of this node that runs on this thread.
    fn current<R>(&self, call: impl FnOnce(&mut Current) -> R) -> Option<R> {
        CURRENT.with_borrow_mut(|current| {
            let current = current.as_mut()?;
            std::ptr::eq(current.owner, self).then(|| call(current))
        })
    }

    fn pass_on(
        &self,
        to: Destination<'_>,
        len: usize,
        post: impl FnOnce(
            &mut ProtocolNode,
            &mut Visit,
            u32,
            Arc<crate::source::library::Library>,
            &[u8],
        ) -> Result<(), TravelError>,
    ) -> Result<(), TravelError> {
        let posted = self.current(|current| {
            let Current { visit, outgoing, .. } = current;
            let payload = outgoing.as_slice().get(..len).ok_or(TravelError::TooLarge)?;
            let library = self.library(to.from, to.entry).map_err(|error| {
                tracing::error!(%error, ifunc = %to.from.name, "an installed image cannot be sent on");
                TravelError::Busy
            })?;
            self.add(|node| post(node, visit, to.node, library, payload))
        });
        posted.unwrap_or(Err(TravelError::NoGroup))
    }
}

/// Whether two types of answers agree, as far as both are stated.
fn answers_agree(from: &InstalledEntry, entry: usize) -> bool {
    let other = from.image().entries.get(entry).map_or(0, |entry| entry.answer);
    from.answer == other || from.answer == 0 || other == 0
}

impl Services for Travels {
    fn travel(&self) -> Option<*const Travel> {
        self.current(|current| {
            let visit = &current.visit;
            let shown = current.shown.get_or_insert_with(|| {
                let (node, peers) = self.with(|node| (node.number(), node.peers().collect::<Vec<u32>>()));
                let travel = Travel {
                    size: size_of::<Travel>() as u32,
                    node: node.unwrap_or(ifunc_abi::travel::NO_NODE),
                    hops: visit.hops(),
                    hops_left: visit.hops_left(),
                    peer_count: if node.is_some() { peers.len() as u32 } else { 0 },
                    deadline: visit.deadline(),
                    peers: peers.as_ptr(),
                };
                Box::new(Shown { travel, peers })
            });
            debug_assert_eq!(shown.travel.peers, shown.peers.as_ptr());
            &raw const shown.travel
        })
    }

    fn outgoing(&self, size: usize) -> *mut u8 {
        let memory = self.current(|current| {
            current.outgoing.try_resize(size)?;
            Some(current.outgoing.as_mut_slice().as_mut_ptr())
        });
        memory.flatten().unwrap_or(std::ptr::null_mut())
    }

    fn send(&self, to: Destination<'_>, len: usize) -> Result<(), TravelError> {
        self.pass_on(to, len, ProtocolNode::send)
    }

    fn forward(&self, to: Destination<'_>, len: usize) -> Result<(), TravelError> {
        if !answers_agree(to.from, to.entry) {
            return Err(TravelError::AnswerType);
        }
        self.pass_on(to, len, ProtocolNode::forward)
    }

    fn reply(&self, len: usize) -> Result<(), TravelError> {
        let replied = self.current(|current| {
            let answer = current
                .outgoing
                .as_slice()
                .get(..len)
                .ok_or(TravelError::TooLarge)?;
            self.add(|node| node.reply_partially(&mut current.visit, answer))
        });
        replied.unwrap_or(Err(TravelError::NoGroup))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use ifunc_abi::frame::Limits;
    use ifunc_abi::travel::TravelHead;
    use ifunc_proto::node::Arrival;

    use super::*;
    use crate::os::EventFd;

    #[test]
    fn a_hook_that_panics_leaves_the_invocation_around_it_as_the_current_one() {
        let limits = Limits {
            max_payload: 100,
            max_image: 100,
            max_answer: 100,
        };
        let doorbell = Arc::new(EventFd::new().unwrap());
        let travels = Travels::new(&crate::hello::serving(limits), 1 << 20, doorbell);
        let visit = |hops: u16| {
            let head = TravelHead {
                hops: hops.into(),
                ..TravelHead::of_source(9)
            };
            travels.arrive(Arrival::Node(1), &head).unwrap()
        };
        let hops = || travels.current(|current| current.visit.hops());
        let (outer, ()) = during(&travels, visit(1), || {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                during(&travels, visit(2), || {
                    assert_eq!(hops(), Some(2));
                    panic!("a hook");
                })
            }));
            assert!(panicked.is_err());
            assert_eq!(hops(), Some(1));
        });
        assert_eq!((outer.hops(), hops()), (1, None));
    }
}
