//! What travels between nodes, and the details of failures.

use ifunc_abi::status::{FaultDetail, PanicDetail, Status};
use ifunc_abi::travel::{LostNode, ReplyHead, ScopeReport, TravelError, TravelHead, WindowHead};
use zerocopy::IntoBytes as _;

/// The first byte chooses what the others are.
pub fn run(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    match first % 7 {
        0 => {
            if let Some(head) = TravelHead::parse(body) {
                assert!(body.starts_with(head.as_bytes()));
            }
        }
        1 => {
            if let Some((head, rest)) = ReplyHead::split(body) {
                assert_eq!([head.as_bytes(), rest].concat(), body);
            }
        }
        2 => {
            if let Some(head) = WindowHead::parse(body) {
                assert_eq!(head.as_bytes(), body);
            }
        }
        3 => {
            if let Some(lost) = LostNode::parse_all(body) {
                assert!(lost.len() <= LostNode::MAX);
                assert_eq!(lost.as_bytes(), body);
            }
        }
        4 => report(body),
        5 => details(body),
        _ => codes(body),
    }
}

/// A report is encoded as it was, and no encoding is longer than asked for.
fn report(body: &[u8]) {
    let Some(report) = ScopeReport::parse(body) else {
        return;
    };
    assert!(report.lost.len() <= ScopeReport::MAX_LOST && report.failures.len() <= ScopeReport::MAX_FAILURES);
    let mut encoded = Vec::new();
    report.encode_to(&mut encoded, usize::MAX);
    assert_eq!(encoded, body);
    let mut sum = report.clone();
    sum.add(&report);
    for max in [0, 20, 64, 200, body.len()] {
        let mut short = Vec::new();
        sum.encode_to(&mut short, max);
        assert!(short.len() <= max.max(ScopeReport::MIN_SIZE));
        assert!(ScopeReport::parse(&short).is_some());
    }
}

fn details(body: &[u8]) {
    if let Some(panic) = PanicDetail::parse(body) {
        assert_eq!(panic.encode(), body);
        assert_eq!(panic.offsets().count() * 4, panic.calls.len());
    }
    if let Some(fault) = FaultDetail::parse(body) {
        // A word that is neither 0 nor 1 reads as 0.
        let again = fault.encode();
        assert_eq!(FaultDetail::parse(&again), Some(fault));
    }
}

fn codes(body: &[u8]) {
    let Some(code) = body.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else {
        return;
    };
    if let Some(status) = Status::from_code(code) {
        assert_eq!(status.code(), code);
        let _ = status.to_string();
    }
    if let Some(error) = TravelError::from_code(code) {
        assert_eq!(error.code(), code);
    }
}
