//! What running code may use of its node: the services that the executor's imports call.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ifunc_abi::context::Travel;
use ifunc_abi::travel::TravelError;
use ifunc_exec::InstalledEntry;
use ifunc_exec::services::{Destination, Services};
use ifunc_proto::buffer::AlignedBuffer;

use super::sent::{SentEntry, Terms};
use super::{ProtocolNode, Travels, Visit};

thread_local! {
    /// The invocation that runs on this thread and may travel; the innermost, where host functions serve.
    static CURRENT: RefCell<Option<Box<Current>>> = const { RefCell::new(None) };
    /// Memory for the next one.
    static SPARE: Cell<Option<Box<Current>>> = const { Cell::new(None) };
}

/// Memory for payloads that stays allocated.
const KEPT: usize = 64 << 10;

struct Current {
    /// Of whose node it is an invocation.
    owner: *const Travels,
    /// `None`: it has ended.
    visit: Option<Visit>,
    /// What its invocations inherit.
    terms: Option<Arc<Terms>>,
    memory: Memory,
}

/// What an invocation uses while it runs.
#[derive(Default)]
struct Memory {
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
struct Outer(Option<Box<Current>>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Runs an invocation, which may use the node meanwhile.
pub(crate) fn during<R>(
    travels: &Arc<Travels>,
    visit: Visit,
    terms: Option<Arc<Terms>>,
    run: impl FnOnce() -> R,
) -> (Visit, R) {
    let mut current = SPARE.take().unwrap_or_else(|| {
        Box::new(Current {
            owner: std::ptr::null(),
            visit: None,
            terms: None,
            memory: Memory::default(),
        })
    });
    current.owner = Arc::as_ptr(travels);
    current.visit = Some(visit);
    current.terms = terms;
    let outer = Outer(CURRENT.replace(Some(current)));
    let result = run();
    let current = CURRENT.take();
    drop(outer);
    let ended = current.and_then(|mut current| {
        let visit = current.visit.take();
        current.terms = None;
        let Memory { outgoing, shown } = &mut current.memory;
        *shown = None;
        if outgoing.len() > KEPT {
            outgoing.shrink(KEPT);
        }
        SPARE.set(Some(current));
        visit
    });
    let Some(visit) = ended else {
        unreachable!("an invocation that runs inside of this one restores it");
    };
    (visit, result)
}

impl Travels {
    /// Calls with the invocation of this node that runs on this thread.
    fn current<R>(&self, call: impl FnOnce(&mut Visit, &mut Memory, Option<&Arc<Terms>>) -> R) -> Option<R> {
        CURRENT.with_borrow_mut(|current| {
            let Current {
                owner,
                visit,
                terms,
                memory,
            } = &mut **current.as_mut()?;
            let visit = visit.as_mut().filter(|_| std::ptr::eq(*owner, self))?;
            Some(call(visit, memory, terms.as_ref()))
        })
    }

    fn pass_on(
        &self,
        to: Destination<'_>,
        len: usize,
        post: impl FnOnce(&mut ProtocolNode, &mut Visit, u32, SentEntry, &[u8]) -> Result<(), TravelError>,
    ) -> Result<(), TravelError> {
        let posted = self.current(|visit, memory, terms| {
            let payload = memory
                .outgoing
                .as_slice()
                .get(..len)
                .ok_or(TravelError::TooLarge)?;
            let posted = self.add_image(to.from, to.entry, |node, library| {
                let terms = terms.cloned();
                post(node, visit, to.node, SentEntry { library, terms }, payload)
            });
            posted.map_err(|error| {
                tracing::error!(%error, ifunc = %to.from.name, "an installed image cannot be sent on");
                TravelError::Busy
            })?
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
        self.current(|visit, memory, _| {
            let shown = memory.shown.get_or_insert_with(|| {
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
        let outgoing = self.current(|_, memory, _| {
            memory.outgoing.try_resize(size)?;
            Some(memory.outgoing.as_mut_slice().as_mut_ptr())
        });
        outgoing.flatten().unwrap_or(std::ptr::null_mut())
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
        let replied = self.current(|visit, memory, _| {
            let answer = memory
                .outgoing
                .as_slice()
                .get(..len)
                .ok_or(TravelError::TooLarge)?;
            self.add(|node| node.reply_partially(visit, answer))
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
        let hops = || travels.current(|visit, _, _| visit.hops());
        let (outer, ()) = during(&travels, visit(1), None, || {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                during(&travels, visit(2), None, || {
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
