//! Target arguments behind a pointer, and what programs in C use beside them.

use std::thread;
use std::time::Duration;

use super::images::{Add, add, set};
use super::running::{Running, unique};
use crate::{Error, RawArgs, RawType, Rejection, Source, Target};

/// A target that is served by the raw functions, and what its counter was at the end.
fn served<R>(raw_type: RawType, use_it: impl FnOnce(&Source) -> R) -> (R, u64) {
    // SAFETY: this process alone connects.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(&unique("loopback")).unwrap();
    let (address, stop) = (target.address(), target.stop_handle());
    let serving = thread::spawn(move || {
        let mut counter = 0u64;
        let args = RawArgs::new((&raw mut counter).cast(), raw_type);
        // SAFETY: a `u64`, which is what the images of these tests take it for.
        unsafe { target.serve_raw(args, || false) }.unwrap();
        counter
    });
    let used = use_it(&Source::connect(&address).unwrap());
    stop.stop();
    (used, serving.join().unwrap())
}

#[test]
fn a_stated_type_is_that_of_ifuncs_that_take_it() {
    let bytes = add().encode().unwrap();
    let call = |source: &Source| {
        let add = source.register_bytes::<Add>(&bytes).unwrap();
        add.call(&5).unwrap().wait()
    };
    let (answer, counter) = served(RawType::stated("u64").unwrap(), call);
    assert_eq!((answer.unwrap(), counter), (5, 5));
    // Another type, and none.
    for raw_type in [RawType::stated("u32").unwrap(), RawType::unstated()] {
        let (answer, counter) = served(raw_type, call);
        let refused =
            |error: &Error| matches!(error, Error::Rejected { why, .. } if *why == Rejection::TargetType);
        let error = answer.unwrap_err();
        assert!(refused(&error) && counter == 0, "{error}");
    }
}

#[test]
fn a_target_waits_for_sources_and_no_longer_than_it_is_told() {
    // SAFETY: this process alone connects.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(&unique("loopback")).unwrap();
    assert!(!target.wait(Duration::ZERO).unwrap());
    let address = target.address();
    let bytes = add().encode().unwrap();
    let calls = thread::spawn(move || {
        let source = Source::connect(&address).unwrap();
        let add = source.register_bytes::<Add>(&bytes).unwrap();
        add.call(&7).unwrap().wait().unwrap()
    });
    let mut counter = 0u64;
    while counter == 0 {
        assert!(target.wait(Duration::from_secs(60)).unwrap());
        target.poll(&mut counter);
    }
    assert_eq!((calls.join().unwrap(), counter), (7, 7));
    target.stop_handle().stop();
    assert!(target.wait(Duration::from_secs(3600)).unwrap());
}

#[test]
fn a_message_is_made_once_and_sent_to_many() {
    // SAFETY: this process alone connects.
    let builder = || unsafe { Target::builder().accept_code() }.credits(64);
    let targets = [(); 2].map(|()| Running::start(&unique("loopback"), builder()));
    let bytes = add().encode().unwrap();
    let handles = [0, 1].map(|at| {
        let source = Source::connect(targets[at].address()).unwrap();
        (source.register_bytes::<Add>(&bytes).unwrap(), source)
    });
    let message = handles[0].0.message(&3).unwrap();
    for (handle, _) in &handles {
        let to = message.to(handle).unwrap();
        to.send().unwrap();
        to.try_send().unwrap();
        assert_eq!(to.call().unwrap().wait().unwrap(), 9);
        assert_eq!(to.try_call().unwrap().wait().unwrap(), 12);
    }
    let (_, source) = &handles[1];
    let bytes = [add(), set()].map(|image| image.encode().unwrap());
    let [add, set] = bytes.map(|bytes| source.load_bytes(&bytes).unwrap());
    let error = add.message(&[0; 8]).unwrap().to(&set).unwrap_err();
    assert!(matches!(error, Error::OtherIfunc { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("a message for `add` cannot be sent by the handle of `set`"),
        "{error}"
    );
}
