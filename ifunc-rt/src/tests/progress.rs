//! Which thread makes progress between calls.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::images;
use super::running::{Running, accepting, between_processes, place, roomy, unique};
use super::threads::until;
use crate::{Progress, Source, SourceOptions};

/// Over UCX the target fetches a large payload with the source's help, which has nothing to do here but live.
#[test]
fn a_thread_finishes_what_was_sent_and_takes_in_what_came() {
    for transport in ["loopback"].into_iter().chain(between_processes()) {
        let target = Running::start(&place(transport), roomy());
        let options = SourceOptions::default()
            .timeout(Duration::from_secs(20))
            .progress(Progress::Thread);
        let source = Source::connect_with(target.address(), options).unwrap();
        let tells = source.load_bytes(&images::tells().encode().unwrap()).unwrap();
        let (told, is_told) = channel();
        let message = images::when_told(move |message| told.send(message).unwrap());
        for size in [1 << 10, 1 << 20, 5 << 20] {
            let mut payload = vec![7; size];
            payload[..8].copy_from_slice(&(message + size as u64).to_le_bytes());
            tells.send(&payload).unwrap();
            let told = is_told.recv_timeout(Duration::from_secs(20));
            assert_eq!(told, Ok(size as u32), "{transport}");
        }
        let before = source.received();
        let call = tells.call(&(message + 1).to_le_bytes()).unwrap();
        assert_eq!(is_told.recv_timeout(Duration::from_secs(20)), Ok(1));
        until(|| source.received() > before);
        drop(call);
        // The thread ends with the source, and the target learns that the source closed.
        drop((tells, source));
        let source = super::running::source(target.address());
        let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        assert_eq!(
            add.call(&5u64.to_le_bytes()).unwrap().wait().unwrap(),
            5u64.to_le_bytes()
        );
        assert_eq!(target.finish(), 5);
    }
}

/// It rests while there is no link, and goes on over the next one.
#[test]
fn a_thread_makes_progress_over_the_next_link() {
    let address = unique("shm");
    let options = SourceOptions::default()
        .timeout(Duration::from_secs(20))
        .progress(Progress::Thread);
    let mut target = Some(Running::start(&address, accepting()));
    let source = Source::connect_with(&address, options).unwrap();
    let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
    for round in 1..4u64 {
        let before = source.received();
        let call = add.call(&round.to_le_bytes()).unwrap();
        until(|| source.received() > before);
        assert_eq!(call.wait().unwrap(), round.to_le_bytes());
        // It notices the end by itself.
        assert_eq!(target.take().unwrap().finish(), round);
        until(|| !source.is_connected());
        let next = accepting().listen(&address).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(next.connections(), 0, "no call asked for a link");
        drop(next);
        target = Some(Running::start(&address, accepting()));
    }
}
