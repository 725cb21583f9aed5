//! `Batch`: its entries one after another, as far as the turn and the room for what becomes of them go.
//!
//! A batch may be left behind any of its entries: its frame stays where it is, and its turn does not pass, until the last was
//! dealt with. How far it was dealt with is written down before an entry is run.

use ifunc_abi::batch::EntryHead;
use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_proto::link::Body as _;
use zerocopy::{FromZeros, IntoBytes};

use super::exec::Unwell;
use super::state::State;
use super::{Argument, End, Share, broke};
use crate::target::Host;
use crate::target::replies::Replies;
use crate::transport::{Body, Frame};
use ifunc_exec::Session;

/// How a look at a batch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// There is nothing left of it.
    Through,
    /// The turn is over.
    UsedUp,
    /// There is no room to say what became of it.
    Stalled,
}

impl State {
    /// Deals with the entries of a batch that were not dealt with.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "what a frame is given, and its share")]
    pub(super) fn batch(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
        share: &mut Share,
    ) -> Result<Look, Box<End>> {
        if header.flags.contains(FrameFlags::ASSEMBLED) || header.handle != 0 || header.token != 0 {
            return Err(broke("a batch that says more than its entries"));
        }
        while self.batch_at != arrived.body.len() {
            if share.is_used_up() {
                return Ok(Look::UsedUp);
            }
            if !replies.admit_entry()? {
                return Ok(Look::Stalled);
            }
            let Some((entry, payload, next)) = entry(&arrived.body, self.batch_at) else {
                // Its source is still told what became of those before.
                self.metrics.link.other_frames.add(1);
                replies.flush()?;
                return Err(broke("a batch with an entry that is cut off"));
            };
            if self.batch_at != 0 {
                failpoint!("target.batch");
            }
            // Before it runs: whatever happens then, it is not run twice.
            self.batch_at = next;
            share.take(payload.len());
            let entry = Header::new(Kind::Exec, entry.code.get(), entry.token.get());
            let arrived = Frame {
                sequence: arrived.sequence,
                words: entry.words(),
                body: payload,
            };
            match self.exec::<true>(replies, host, session, argument, entry, &arrived) {
                Ok(answer_len) => replies.gather_answer(entry.token, answer_len)?,
                Err(unwell) => match *unwell {
                    Unwell::Told(status, detail) => {
                        self.count_unwell(status, payload.len(), detail.len());
                        replies.conclude_entry(arrived.sequence, entry, status, &detail)?;
                    }
                    Unwell::Over(end) => return Err(end),
                },
            }
        }
        self.batch_at = 0;
        self.metrics.link.other_frames.add(1);
        share.take(0);
        Ok(Look::Through)
    }
}

/// The entry at `at`: its head, its bytes, and where the next one begins. The head is copied out once; what is judged and used
/// is the copy.
fn entry<'a>(batch: &Body<'a>, at: usize) -> Option<(EntryHead, Body<'a>, usize)> {
    let mut head = EntryHead::new_zeroed();
    batch.slice(at, EntryHead::SIZE)?.copy_to(head.as_mut_bytes());
    let len = head.len.get() as usize;
    let whole = batch.slice(at, EntryHead::padded_len(len)?)?;
    Some((head, whole.slice(EntryHead::SIZE, len)?, at + whole.len()))
}
