//! What frames act on, and which frame does what.

use ifunc_abi::frame::{Header, InstallHead, Kind};
use ifunc_abi::status::{Rejection, Status};
use ifunc_proto::link::Body as _;

use super::binding::Binding;
use super::exec::Unwell;
use super::{Argument, End, broke};
use crate::observe::{Pages, SourceMetrics};
use crate::policy::SourceInfo;
use crate::target::Host;
use crate::target::replies::Replies;
use crate::transport::{Body, Frame};
use crate::wire::assembly::Assembly;
use ifunc_exec::Session;
use ifunc_proto::buffer::AlignedBuffer;

/// What frames act on.
pub(super) struct State {
    pub(super) source: SourceInfo,
    pub(super) bindings: Vec<Binding>,
    pub(super) assembly: Assembly,
    pub(super) scratch: AlignedBuffer,
    /// How far the batch whose turn it is was dealt with, in bytes of its body; 0 if there is none.
    pub(super) batch_at: usize,
    pub(super) copy_payloads: bool,
    /// Whether it may ask what was counted.
    pub(super) may_ask: bool,
    pub(super) pages: Pages,
    /// Parent of the spans of its invocations.
    pub(super) span: tracing::Span,
    /// Behind the bindings, which are given back to it.
    pub(super) metrics: SourceMetrics,
}

impl State {
    /// Deals with a frame that was admitted, and is no batch.
    #[inline(always)]
    pub(super) fn frame(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
    ) -> Result<(), Box<End>> {
        match header.kind {
            Kind::Exec => match self.exec::<false>(replies, host, session, argument, header, arrived) {
                Ok(answer_len) => replies.answer(header.token, answer_len),
                Err(unwell) => match *unwell {
                    Unwell::Told(status, detail) => {
                        self.count_unwell(status, arrived.body.len(), detail.len());
                        if matches!(status, Status::Rejected(_)) {
                            self.metrics.link.other_frames.add(1);
                        }
                        replies.conclude(arrived.sequence, header, status, &detail)
                    }
                    Unwell::Over(end) => Err(end),
                },
            },
            _ => self.other_frame(replies, host, argument, header, arrived),
        }
    }

    /// As [`frame`](Self::frame), for those whose turn came after they had.
    #[cold]
    pub(super) fn late_frame(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
    ) -> Result<(), Box<End>> {
        self.frame(replies, host, session, argument, header, arrived)
    }

    /// Deals with a frame that is no `Exec`.
    #[cold]
    fn other_frame(
        &mut self,
        replies: &mut Replies,
        host: &Host,
        argument: &Argument,
        header: Header,
        arrived: &Frame<Body<'_>>,
    ) -> Result<(), Box<End>> {
        self.metrics.link.other_frames.add(1);
        match header.kind {
            Kind::Install => {
                let result = self.install(host, argument, header, arrived)?;
                // Without a token nothing is said: the frames that want the image will be told.
                if header.token == 0 {
                    return Ok(());
                }
                let (status, detail) = match &result {
                    Ok(()) => (Status::Executed, ""),
                    Err(refusal) => (Status::Rejected(refusal.reason), &*refusal.detail),
                };
                self.metrics.link.bytes_out.add(detail.len() as u64);
                replies.complete(header.token, status, detail.as_bytes())
            }
            Kind::Unbind => {
                if let Some(binding) = self.bindings.get_mut(header.handle as usize) {
                    *binding = Binding::Free;
                }
                Ok(())
            }
            Kind::Fragment => {
                let image = host
                    .limits
                    .max_image
                    .saturating_add(InstallHead::SIZE as u64 + 1024);
                let limit = usize::try_from(host.limits.max_payload.max(image)).unwrap_or(usize::MAX);
                self.assembly
                    .part(header.handle, header.token, &arrived.body, limit)
                    .map_err(broke)?;
                failpoint!("target.fragment");
                Ok(())
            }
            Kind::Sync => replies.complete(header.token, Status::Executed, b""),
            Kind::Stats => {
                if header.token == 0 {
                    return Err(broke("a question that wants no answer"));
                }
                let (status, page) = if self.may_ask {
                    let (metrics, room) = (self.metrics.metrics(), replies.room());
                    let now = std::time::Instant::now();
                    self.pages
                        .page(metrics, self.source.connection, header.handle, room, now)
                } else {
                    let why = "this target does not tell what it counts; help: `Target::builder().share_stats(true)` on the target";
                    (Status::Rejected(Rejection::Policy), why.into())
                };
                self.metrics.link.bytes_out.add(page.len() as u64);
                replies.complete(header.token, status, &page)
            }
            Kind::Exec | Kind::Batch | Kind::Completion | Kind::Report | Kind::Completions => {
                Err(broke(format!("a source sent a {:?}", header.kind)))
            }
        }
    }
}
