use std::sync::atomic::AtomicU64;

#[ifunc::import]
unsafe extern "C" {
    safe static HITS: AtomicU64;
    static LIMIT: u64;
}

fn keep() -> &'static AtomicU64 {
    &HITS
}

fn main() {
    let _ = (keep(), LIMIT.get());
}
