//! Targets on threads of their own.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::images::{self, Add};
use super::running::{accepting, source, unique};
use crate::{Error, ServeEnd, ServeError};

#[test]
fn a_spawned_target_returns_what_it_owns_and_frees_its_address() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let serving = accepting().listen(&address).unwrap().spawn(5u64).unwrap();
        assert_eq!(serving.address(), address);
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        assert_eq!(add.call(&1).unwrap().wait().unwrap(), 6);
        assert_eq!(serving.stop().unwrap(), 6);
        // Dropped, it stops as well; the source finds each of them.
        for start in [10, 20] {
            let serving = accepting().listen(&address).unwrap().spawn(start).unwrap();
            // Sends before the source notices the new target went to the previous one.
            let answer = loop {
                match add.call(&1).unwrap().wait() {
                    Err(Error::Indeterminate { .. }) => {}
                    answered => break answered.unwrap(),
                }
            };
            assert_eq!(answer, start + 1);
            drop(serving);
        }
        let serving = accepting().listen(&address).unwrap().spawn(30u64).unwrap();
        serving.stop_handle().stop();
        assert_eq!(serving.stop().unwrap(), 30);
    }
}

#[test]
fn a_panic_of_the_host_is_contained() {
    let address = unique("shm");
    let (sent, builder) = super::running::panicking();
    let serving = builder.listen(&address).unwrap().spawn(5u64).unwrap();
    let source = source(&address);
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let call = add.call(&1).unwrap();
    sent.wait();
    assert!(matches!(call.wait(), Err(Error::Indeterminate { .. })));
    let error: ServeError<u64> = serving.stop().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the target at `{address}` stopped serving: a function of this process panicked: what is add?"
        )
    );
    assert!(matches!(error.why, ServeEnd::Panicked(_)));
    assert_eq!(error.value, 5);
}

/// What a target owns of the host's is dropped on the thread that served.
#[test]
fn a_panic_of_what_it_owns_is_contained() {
    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("this is a part of the test");
        }
    }

    let owned = Panics;
    let builder = accepting().map_policy(|policy| {
        policy.accept_if(move |_, _| {
            let _ = &owned;
            false
        })
    });
    let serving = builder.listen(&unique("shm")).unwrap().spawn(5u64).unwrap();
    let error = serving.stop().unwrap_err();
    assert!(matches!(&error.why, ServeEnd::Panicked(why) if why.contains("part of the test")));
    assert_eq!(error.value, 5);
}

/// A judge stands for an invocation that does not end: both are what the thread is in.
#[test]
fn what_does_not_end_is_waited_for_until_a_deadline() {
    let address = unique("shm");
    let (entered, has_entered) = channel();
    let (leave, may_leave): (_, Receiver<()>) = channel();
    let builder = accepting().map_policy(|policy| {
        policy.accept_if(move |_, _| {
            entered.send(()).unwrap();
            may_leave.recv().is_ok()
        })
    });
    let mut serving = builder.listen(&address).unwrap().spawn(5u64).unwrap();
    let source = source(&address);
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let call = add.call(&1).unwrap();
    has_entered.recv().unwrap();
    assert!(serving.stop_timeout(Duration::from_millis(20)).is_none());
    leave.send(()).unwrap();
    let value = loop {
        if let Some(ended) = serving.stop_timeout(Duration::from_secs(20)) {
            break ended.unwrap();
        }
    };
    // Frames that arrived in the same poll were run.
    assert_eq!((call.wait().unwrap(), value), (6, 6));
}
