//! Many threads that load UCX at the same moment, in a process of their own.

use std::mem::MaybeUninit;
use std::sync::Barrier;

use ucx_sys::Ucx;

const THREADS: usize = 8;

fn handler(signal: i32) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action changes nothing.
    let done = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: written by the call that succeeded; zeroes are a valid value, too.
    unsafe { action.assume_init() }.sa_sigaction
}

#[test]
fn threads_that_load_at_once_find_the_same_and_leave_the_handlers() {
    let signals = [libc::SIGSEGV, libc::SIGFPE, libc::SIGHUP];
    let before = signals.map(handler);
    let start = Barrier::new(THREADS);
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    Ucx::load().map(|ucx| &raw const *ucx as usize)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    assert_eq!(signals.map(handler), before);
    if let Err(error) = &found[0] {
        assert!(
            std::env::var_os("IFUNC_REQUIRE_UCX").is_none(),
            "UCX is required here: {error}"
        );
        eprintln!("not tested: {error}");
    }
}
