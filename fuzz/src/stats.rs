//! Pages of a target's counters, and the snapshot that they make.

use ifunc_abi::stats::{DurationHistogram, PageHead, Stats};
use zerocopy::IntoBytes as _;

/// An odd first byte: a page; an even one: a snapshot.
pub fn run(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    if first % 2 == 1 {
        if let Ok((head, part)) = PageHead::split(body) {
            assert!(head.offset.get() as usize + part.len() <= head.total.get() as usize);
            assert_eq!([head.as_bytes(), part].concat(), body);
        }
        return;
    }
    let Ok(stats) = Stats::decode(body) else { return };
    let encoded = stats.encode().expect("memory");
    assert_eq!(Stats::decode(&encoded).expect("it was encoded"), stats);
    for ifunc in &stats.ifuncs {
        histogram(&ifunc.counts.times);
    }
}

fn histogram(of: &DurationHistogram) {
    let mut sum = of.clone();
    sum.merge(of);
    let _ = (sum.since(of), sum.count(), sum.mean_ns());
    for part in [0.0, 0.5, 0.99, 1.0] {
        let _ = sum.quantile_ns(part);
    }
}
