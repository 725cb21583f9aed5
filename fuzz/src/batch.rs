//! Bodies of runs: `Batch` and `Completions`.

use ifunc_abi::batch::{ALIGN, MAX_RUN, RunHead};
use zerocopy::FromBytes as _;

/// Walks the runs as a receiver does. Each that is accepted holds all its entries, and they do not overlap.
pub fn run(data: &[u8]) {
    let mut rest = data;
    while let Ok((head, _)) = RunHead::read_from_prefix(rest) {
        let Some(len) = head.run_len() else { return };
        assert!(len.is_multiple_of(ALIGN) && len >= RunHead::SIZE);
        let (stride, count) = (u64::from(head.stride.get()), u64::from(head.count.get()));
        assert!((1..=u64::from(MAX_RUN)).contains(&count) && stride >= u64::from(head.len.get()));
        assert!(RunHead::SIZE as u64 + stride * count <= len as u64);
        let last = head.token.get().checked_add(count - 1);
        assert!(head.token.get() == 0 || last.is_some(), "tokens overflow");
        if count == 1 && stride == u64::from(head.len.get()) {
            assert_eq!(RunHead::single_len(head.len.get() as usize), Some(len));
        }
        let Some(next) = rest.get(len..) else { return };
        rest = next;
    }
}
