//! Short active messages over one endpoint.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use ucx::{Endpoint, Operations, Request, Started};

use super::am::finished;
use super::message;

/// What is sent, until UCX is done with it: nearly always at once.
pub(in crate::roles) struct Outbox {
    endpoint: Endpoint,
    under_way: VecDeque<Request>,
    /// Of the last one.
    spare: Vec<u8>,
}

impl Outbox {
    pub(in crate::roles) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            under_way: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    pub(in crate::roles) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    #[inline]
    pub(in crate::roles) fn send<H: ucx::Handler>(
        &mut self,
        worker: &mut impl Operations<H>,
        id: u16,
        bytes: &[u8],
    ) -> Result<()> {
        while let Some(first) = self.under_way.pop_front_if(|first| first.is_done(worker)) {
            finished(first, worker)?;
        }
        let mut payload = std::mem::take(&mut self.spare);
        payload.clear();
        payload.extend_from_slice(bytes);
        let started = worker.start(message(&self.endpoint, id, 0..bytes.len()), payload);
        match started.context("sending an active message")? {
            Started::UnderWay(request) => self.under_way.push_back(request),
            Started::Done(payload) => self.spare = payload.into_vec(),
        }
        Ok(())
    }

    pub(in crate::roles) fn is_busy<H: ucx::Handler>(&self, worker: &impl Operations<H>) -> bool {
        self.under_way.iter().any(|request| !request.is_done(worker))
    }
}
