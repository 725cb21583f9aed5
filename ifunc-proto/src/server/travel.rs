//! Invocations that travel on, and what else nodes send each other.

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use zerocopy::{FromZeros, IntoBytes};

use super::{Binding, Images, Progress, Server, Unanswered, too_many_handles};
use crate::closed::Closed;
use crate::host::{Event, Host, Invocation, Payload, Refusal, ReplyTo};
use crate::link::{Body, Frame, Outbound};
use crate::order::{Order, Quantum};

/// Memory that stays allocated for copies of frames from nodes.
const KEPT_COPY: usize = 64 << 10;

impl<B> Server<B> {
    /// Gives an invocation that may travel on to the host.
    #[cold]
    #[inline(never)]
    pub(crate) fn travel<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        order: &mut Order,
        quantum: &mut Quantum,
        header: Header,
        frame: Frame<P>,
    ) -> Result<Progress, Unanswered> {
        let Self { images, replies, .. } = self;
        let Some((destination, answer)) = replies.begin_answer(tx, header.token)? else {
            return Ok(Progress::Blocked);
        };
        // Before it runs: a frame never runs twice.
        order.advance();
        quantum.charge_invocation(frame.body.len());
        if H::TAKES {
            quantum.exhaust();
        }
        let Some(len) = images.travel(host, header, frame, answer)? else {
            return Ok(Progress::Done);
        };
        replies.send_answer(tx, destination, header.token, len)?;
        Ok(Progress::Done)
    }

    /// Processes a frame from a node that is no invocation.
    #[cold]
    #[inline(never)]
    pub(crate) fn node_frame<H: Host<Image = B>, P: Body>(
        &mut self,
        host: &mut H,
        header: Header,
        frame: &Frame<P>,
    ) -> Result<(), Box<Closed>> {
        host.observe(Event::Frame);
        let Images { assembly, copy, .. } = &mut self.images;
        let processed = if header.flags.contains(FrameFlags::ASSEMBLED) {
            let whole = assembly.finish(host, frame.body).map_err(Closed::broke)?;
            // A frame that was not kept may be what another invocation waits for.
            let body = whole.map_err(|refusal| Closed::broke(&*refusal.detail))?;
            let processed = host.node_frame(header, body);
            assembly.clear(host);
            processed
        } else {
            copy.clear();
            frame.body.append_to(copy);
            let processed = host.node_frame(header, copy);
            copy.clear();
            copy.shrink_to(KEPT_COPY);
            processed
        };
        processed.map_err(Closed::broke)
    }

    /// Asks the host for a completion when a scope has ended.
    pub(crate) fn finish<H: Host<Image = B>>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        header: Header,
        sequence: u32,
    ) -> Result<(), Box<Closed>> {
        let call = (header.handle, header.token);
        let reply_to = ReplyTo::late(call, sequence, 0, Some(self.replies.max_reply()));
        match host.finish(header.handle, reply_to) {
            Ok(()) => Ok(()),
            Err(refusal) => {
                let (status, detail) = (Status::Rejected(refusal.reason), refusal.detail.as_bytes());
                self.replies.complete(tx, header.token, status, detail)
            }
        }
    }

    /// Ends an invocation that traveled. `node`: the node on which it failed, if it was another one.
    #[cold]
    pub(crate) fn conclude_late(
        &mut self,
        tx: &mut impl Outbound,
        reply_to: &ReplyTo,
        node: Option<u32>,
        status: Status,
        body: &[u8],
    ) -> Result<(), Box<Closed>> {
        let (handle, token) = reply_to.call;
        if token == 0 {
            return self
                .replies
                .conclude(tx, reply_to.sequence, (handle, 0), status, body);
        }
        let mut header = Header::new(Kind::Completion, status.code(), token);
        let mut whole = Vec::new();
        if let Some(node) = node
            && status != Status::Executed
        {
            header.flags = FrameFlags::RELAYED;
            whole.extend_from_slice(&node.to_le_bytes());
        }
        whole.extend_from_slice(body);
        self.replies.send_late(tx, header, whole)
    }
}

impl<B> Images<B> {
    /// Gives an invocation to the host. `None`: it ends later.
    fn travel<H: Host<Image = B>, P: Body>(
        &mut self,
        host: &mut H,
        header: Header,
        frame: Frame<P>,
        answer: Option<&mut [u8]>,
    ) -> Result<Option<usize>, Unanswered> {
        let Self {
            bindings,
            config,
            assembly,
            longest_answer,
            ..
        } = self;
        let Frame { sequence, body, .. } = frame;
        let mut head = TravelHead::new_zeroed();
        let is_assembled = header.flags.contains(FrameFlags::ASSEMBLED);
        let payload = if is_assembled {
            let whole = match assembly.finish(host, body).map_err(Closed::broke)? {
                Ok(whole) => whole,
                Err(refusal) => {
                    head.as_mut_bytes().copy_from_slice(assembly.front());
                    assembly.clear(host);
                    let reply_to = ReplyTo::late(
                        (header.handle, header.token),
                        sequence,
                        0,
                        answer.as_ref().map(|answer| answer.len()),
                    );
                    return reject(host, &head, &reply_to, refusal);
                }
            };
            let (front, payload) = whole.split_at_checked(TravelHead::SIZE).ok_or_else(too_short)?;
            head.as_mut_bytes().copy_from_slice(front);
            Payload::Private(payload)
        } else {
            let front = body.slice(0, TravelHead::SIZE).ok_or_else(too_short)?;
            front.copy_to(head.as_mut_bytes());
            let rest = body.slice(TravelHead::SIZE, body.len() - TravelHead::SIZE);
            Payload::InPlace(rest.ok_or_else(too_short)?)
        };
        let size = payload.len();
        let call = (header.handle, header.token);
        let max_answer = answer.as_ref().map(|answer| answer.len());
        let reply_to = ReplyTo::late(call, sequence, size, max_answer).with_longest(*longest_answer);
        let (handle, max_handles, limit) = (header.handle, config.max_handles, config.limits.max_payload);
        let refusal = match bindings.get(handle) {
            Some(Binding::Bound(image)) if size as u64 <= limit => {
                let invocation = Invocation {
                    sequence,
                    is_batched: false,
                    payload,
                };
                let outcome = host.travel(image, invocation, &head, reply_to, answer);
                if is_assembled {
                    assembly.clear(host);
                }
                return Ok(outcome?);
            }
            Some(Binding::Bound(_)) => {
                let detail = format!("a payload of {size} bytes, the limit is {limit}");
                Refusal::new(Rejection::TooLarge, detail)
            }
            Some(Binding::Refused(refusal)) => refusal.clone(),
            None if handle as usize >= max_handles => too_many_handles(handle, max_handles),
            None | Some(Binding::Free) => Refusal::new(Rejection::Unbound, format!("handle {handle}")),
        };
        if is_assembled {
            assembly.clear(host);
        }
        reject(host, &head, &reply_to, refusal)
    }
}

/// An invocation that may travel on does not run.
fn reject(
    host: &mut impl Host,
    head: &TravelHead,
    reply_to: &ReplyTo,
    refusal: Refusal,
) -> Result<Option<usize>, Unanswered> {
    match host.reject_travel(head, reply_to, refusal.into()) {
        Some(failed) => Err(Unanswered::Failed(failed)),
        None => Ok(None),
    }
}

#[cold]
fn too_short() -> Box<Closed> {
    Closed::broke("an invocation that travels and has no head")
}
