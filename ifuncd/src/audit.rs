//! What is written down of refusals.
//!
//! The runtime logs what it refuses itself: connections, images and invocations. Here are the lines of the daemon's own checks. Both have the
//! level `WARN`, and go to the audit log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ifuncd_interfaces::NodeError;

use crate::capability::Capability;

/// Lines of one peer and one reason that are written at once.
const BURST: u32 = 100;
/// After them, one line in this time, which says how many there were.
const INTERVAL: Duration = Duration::from_secs(1);
/// Kinds of lines that are remembered.
const MAX_KINDS: usize = 4096;

/// Bytes of what a peer wrote, such as a path, that a line has.
const MAX_TEXT: usize = 256;

/// The target of these events.
pub const TARGET: &str = "ifuncd::audit";

struct Kind {
    lines: u32,
    since: Instant,
    suppressed: u64,
}

static KINDS: Mutex<Option<HashMap<String, Kind>>> = Mutex::new(None);

/// Whether to write a line of this kind, and how many were not written since the last one.
fn admits(kind: &str, now: Instant) -> Option<u64> {
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    let kinds = kinds.get_or_insert_default();
    if kinds.len() >= MAX_KINDS && !kinds.contains_key(kind) {
        kinds.clear();
    }
    let known = kinds.entry(kind.to_owned()).or_insert(Kind {
        lines: 0,
        since: now,
        suppressed: 0,
    });
    if now.saturating_duration_since(known.since) >= INTERVAL {
        known.since = now;
        // Once there was a burst, a quiet minute allows the next one.
        known.lines = known.lines.saturating_sub(1).min(BURST - 1);
    }
    if known.lines >= BURST {
        known.suppressed += 1;
        return None;
    }
    known.lines += 1;
    Some(std::mem::take(&mut known.suppressed))
}

/// As much of what a peer wrote as a line has.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// A call of an interface was refused.
pub(crate) fn call_refused(peer: &str, capability: Capability, why: NodeError, what: &str) {
    let kind = format!("{peer} {capability} {why:?}");
    if let Some(suppressed) = admits(&kind, Instant::now()) {
        let (suppressed, what) = ((suppressed > 0).then_some(suppressed), cut(what));
        tracing::warn!(target: TARGET, peer, %capability, reason = ?why, what, suppressed, "call refused: {why}");
    }
}

/// An image was refused.
pub(crate) fn image_refused(peer: Option<&str>, image: &str, why: &str) {
    let kind = format!("{} image", peer.unwrap_or_default());
    if let Some(suppressed) = admits(&kind, Instant::now()) {
        let (suppressed, image) = ((suppressed > 0).then_some(suppressed), cut(image));
        tracing::warn!(target: TARGET, peer, image, suppressed, "image refused: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("path"), "path");
        let long = "ä".repeat(4096);
        assert_eq!(cut(&long), &long[..MAX_TEXT]);
        assert_eq!(cut(&format!("a{long}")).len(), MAX_TEXT - 1);
    }

    #[test]
    fn a_flood_is_a_burst_and_a_line_per_second() {
        let start = Instant::now();
        let at = |ms: u64| admits("flood", start + Duration::from_millis(ms));
        let written: Vec<_> = (0..3000).filter_map(at).collect();
        let (burst, rest) = written.split_at(BURST as usize);
        assert!(burst.iter().all(|suppressed| *suppressed == 0));
        assert_eq!(rest, [900, 999]);
        assert_eq!(admits("another", start), Some(0));
    }
}
