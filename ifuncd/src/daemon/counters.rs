//! What answers requests for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ifunc_rt::StatsHandle;
use ifunc_rt::stats::Stats;

use crate::audit::AuditLog;
use crate::http::Answer;
use crate::metrics;
use crate::node::Data;

/// What answers requests for metrics.
pub(super) struct Counters {
    pub(super) stats: Vec<StatsHandle>,
    pub(super) data: Arc<Data>,
    pub(super) audit: Option<AuditLog>,
    pub(super) is_draining: AtomicBool,
}

impl Counters {
    pub(super) fn answer(&self, path: &str) -> Option<Answer> {
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        match path {
            "/metrics" => {
                let stats: Vec<Stats> = self.stats.iter().map(StatsHandle::read).collect();
                Some(Answer {
                    status: "200 OK",
                    content_type: metrics::CONTENT_TYPE,
                    body: metrics::text(&stats, &self.data, self.audit.as_ref(), is_draining),
                })
            }
            "/health" if is_draining => Some(Answer::text("503 Service Unavailable", "draining")),
            "/health" => Some(Answer::text("200 OK", "ok")),
            _ => None,
        }
    }
}
