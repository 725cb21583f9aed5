//! Workers of an application's: who may use them, who makes progress, and what is left when they go.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ucx_sys::*;

use super::*;
use crate::TargetError;
use crate::transport::ucx::table::Stage;
use crate::transport::ucx::{Calling, Lent, Terms, Unfit};
use crate::transport::{ConnectError, Outbound, Park};

/// An application: a context and a worker, and endpoints to others.
struct Application {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: ucp_worker_h,
}

/// A worker of several threads'.
#[derive(Clone, Copy)]
struct Shared(ucp_worker_h);

// SAFETY: of `UCS_THREAD_MODE_MULTI`.
unsafe impl Sync for Shared {}

impl Application {
    fn new(thread_mode: ucs_thread_mode_t, features: u32) -> Self {
        let ucx = Ucx::load().unwrap();
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED),
            features: features.into(),
            mt_workers_shared: 1,
            ..ucp_params_t::default()
        };
        let (mut context, mut worker) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the parameters are as their mask says.
        ucx.check(unsafe { ucx.ucp_init(&raw const params, std::ptr::null(), &raw mut context) })
            .unwrap();
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode,
            ..ucp_worker_params_t::default()
        };
        // SAFETY: the context is alive.
        ucx.check(unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut worker) })
            .unwrap();
        Self { ucx, context, worker }
    }

    fn lend(&self, progress: bool) -> Result<Lent, Unfit> {
        let terms = Terms {
            am_id: 9,
            progress,
            wakeup: false,
        };
        // SAFETY: both live until `end`, which is called behind `let_go`.
        unsafe { Lent::new(self.ucx, self.context, self.worker, terms) }
    }

    fn endpoint(&self, to: &Self) -> ucp_ep_h {
        let (mut address, mut len, mut ep) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
        // SAFETY: both workers are alive, and this thread's.
        unsafe {
            self.ucx
                .check(
                    self.ucx
                        .ucp_worker_get_address(to.worker, &raw mut address, &raw mut len),
                )
                .unwrap();
            let params = ucp_ep_params_t {
                field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
                address,
                ..ucp_ep_params_t::default()
            };
            self.ucx
                .check(
                    self.ucx
                        .ucp_ep_create(self.worker, &raw const params, &raw mut ep),
                )
                .unwrap();
            self.ucx.ucp_worker_release_address(to.worker, address);
        }
        ep
    }

    /// Its endpoints go with it.
    fn end(self) {
        // SAFETY: nobody uses them any more.
        unsafe {
            self.ucx.ucp_worker_destroy(self.worker);
            self.ucx.ucp_cleanup(self.context);
        }
    }
}

/// A connection between two workers of this thread.
fn meet(listener: &mut dyn Listener, mut calling: Calling) -> (Link, Link) {
    let mut target = None;
    let source = wait_for("a connection", || {
        target = target.take().or_else(|| listener.accept());
        calling.poll()
    });
    let target = target.unwrap_or_else(|| wait_for("the target", || listener.accept()));
    (source.unwrap(), target)
}

fn there_and_back(source: &mut Link, target: &mut Link, listener: &mut dyn Listener) {
    for (n, len) in [0, 1, 100, 5000, 400_000].into_iter().enumerate() {
        let body = content(n as u32, len);
        send(source, &body).unwrap().unwrap();
        let (_, there) = wait_for("a frame", || {
            assert!(receive(source).unwrap().is_none());
            assert!(listener.accept().is_none());
            receive(target).unwrap()
        });
        assert!(there == body);
        send(target, &there).unwrap().unwrap();
        let (_, back) = wait_for("its way back", || {
            assert!(receive(target).unwrap().is_none());
            receive(source).unwrap()
        });
        assert!(back == body);
    }
}

#[test]
fn a_worker_of_one_thread_is_used_there_alone_and_left_in_any_order() {
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| Application::new(UCS_THREAD_MODE_SINGLE, UCP_FEATURE_AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(true).unwrap(),
        there.lend(true).unwrap(),
    );
    let over = lent_here.over(ep);

    // Nobody listens there yet: that is said, and is no reason to give up.
    let mut calling = over.call().unwrap();
    let error = wait_for("an answer", || {
        lent_there.poll();
        calling.poll()
    });
    let error = error.unwrap_err();
    assert!(
        matches!(error, ConnectError::NobodyListens { .. }) && error.may_pass(),
        "{error}"
    );

    let mut listener = lent_there.listen(&ListenConfig::new(LIMITS)).unwrap();
    let twice = lent_there.listen(&ListenConfig::new(LIMITS)).map(drop);
    assert!(twice.unwrap_err().to_string().contains("is in use by process"));

    // Two connections over one endpoint do not take each other's frames.
    let (mut one, mut one_there) = meet(&mut *listener, over.call().unwrap());
    let (mut other, mut other_there) = meet(&mut *listener, over.call().unwrap());
    there_and_back(&mut one, &mut one_there, &mut *listener);
    there_and_back(&mut other, &mut other_there, &mut *listener);
    assert!(one.waiter.carried_by().contains('/') && !one.waiter.serves_any_thread());

    let (panic, one) = std::thread::spawn(move || {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| send(&mut one, b"x").map(drop)));
        (panic.unwrap_err(), one)
    })
    .join()
    .unwrap();
    let why = panic.downcast_ref::<&str>().unwrap();
    assert!(why.contains("used by another thread than its own"), "{why}");
    // What is dropped elsewhere is left by the next use here.
    std::thread::spawn(move || drop(one)).join().unwrap();
    wait_for("its leave", || {
        lent_here.poll();
        lent_there.poll();
        receive(&mut one_there).is_err().then_some(())
    });
    there_and_back(&mut other, &mut other_there, &mut *listener);

    // The application knows better.
    lent_here.peer_gone(ep);
    assert!(matches!(receive(&mut other), Err(LinkError::Closed)));
    assert!(matches!(over.call().map(drop), Err(ConnectError::Refused { .. })));
    drop(other);

    // A worker that is taken back leaves its links behind, and is not used by them.
    assert!(lent_there.let_go());
    assert!(matches!(receive(&mut other_there), Err(LinkError::Closed)));
    assert!(other_there.tx.reserve(1, 1).is_err() && listener.accept().is_none());
    assert!(lent_here.let_go());
    there.end();
    here.end();
    drop((other_there, one_there, listener, lent_there, over, lent_here));
}

#[test]
fn an_application_makes_progress_while_others_wait() {
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| Application::new(UCS_THREAD_MODE_MULTI, UCP_FEATURE_AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(false).unwrap(),
        there.lend(false).unwrap(),
    );
    let over = lent_here.over(ep);
    let mut listener = lent_there.listen(&ListenConfig::new(LIMITS)).unwrap();
    // Nobody else makes any.
    assert!(matches!(
        over.connect(Instant::now() + Duration::from_millis(200)),
        Err(ConnectError::Timeout { .. })
    ));
    let (ended, workers) = (AtomicBool::new(false), [here.worker, there.worker].map(Shared));
    let ucx = here.ucx;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let workers = &workers;
            while !ended.load(Ordering::Relaxed) {
                for &Shared(worker) in workers {
                    // SAFETY: alive until the scope ends, and of any thread.
                    unsafe { ucx.ucp_worker_progress(worker) };
                }
                std::thread::yield_now();
            }
        });
        let target = scope.spawn(|| {
            // The call that nobody waits for any more is seen out.
            let mut links = Vec::new();
            let mut seen = 0;
            wait_for("frames", || {
                links.extend(listener.accept());
                for link in &mut links {
                    if let Ok(Some((_, body))) = receive(link) {
                        seen += 1;
                        send(link, &body).unwrap().unwrap();
                    }
                }
                (seen == 300).then_some(())
            });
            links
        });
        let mut source = over.connect(soon()).unwrap();
        for n in 0..300 {
            let body = content(n, n as usize * 577 % 60_000);
            send(&mut source, &body).unwrap().unwrap();
            let deadline = soon();
            let back = loop {
                if let Some((_, back)) = receive(&mut source).unwrap() {
                    break back;
                }
                assert!(Instant::now() < deadline);
                if source.rx.arm() {
                    source.waiter.sleep(deadline, None);
                }
                source.rx.disarm();
            };
            assert!(back == body);
        }
        let links = target.join().unwrap();
        drop((source, links));
        assert!(lent_here.let_go() && lent_there.let_go());
        ended.store(true, Ordering::Relaxed);
    });
    drop((listener, over));
    here.end();
    there.end();
}

/// What a callback of the application's tries, and what came of it.
struct Attempt {
    lent: Lent,
    left: RefCell<Option<Link>>,
    said: RefCell<Option<String>>,
}

/// `ucp_am_recv_callback_t`, with an [`Attempt`] as `arg`.
unsafe extern "C" fn calls_back(
    arg: *mut std::ffi::c_void,
    _: *const std::ffi::c_void,
    _: usize,
    _: *mut std::ffi::c_void,
    _: usize,
    _: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the test's, which looks at it when progress has returned.
    let attempt = unsafe { &*arg.cast::<Attempt>() };
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attempt.lent.poll()));
    let said = panic.map_err(|panic| (*panic.downcast_ref::<&str>().unwrap()).to_owned());
    attempt.said.replace(said.err());
    drop(attempt.left.take());
    UCS_OK
}

#[test]
fn a_callback_that_calls_back_is_told_so_and_may_drop_what_it_has() {
    const THEIRS: u32 = 5;
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| Application::new(UCS_THREAD_MODE_MULTI, UCP_FEATURE_AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(true).unwrap(),
        there.lend(true).unwrap(),
    );
    let back = there.endpoint(&here);
    let over = lent_here.over(ep);
    let mut listener = lent_there.listen(&ListenConfig::new(LIMITS)).unwrap();
    let (source, mut target) = meet(&mut *listener, over.call().unwrap());
    let attempt = Attempt {
        lent: lent_here.clone(),
        left: RefCell::new(Some(source)),
        said: RefCell::default(),
    };
    let handler = ucp_am_handler_param_t {
        field_mask: u64::from(
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        ),
        id: THEIRS,
        cb: Some(calls_back),
        arg: (&raw const attempt).cast_mut().cast(),
        ..ucp_am_handler_param_t::default()
    };
    let params = ucp_request_param_t::default();
    // SAFETY: both workers are alive; nothing is sent from memory that is not there.
    unsafe {
        let ucx = here.ucx;
        ucx.check(ucx.ucp_worker_set_am_recv_handler(here.worker, &raw const handler))
            .unwrap();
        ucx.ucp_am_send_nbx(
            back,
            THEIRS,
            std::ptr::null(),
            0,
            std::ptr::null(),
            0,
            &raw const params,
        );
    }
    let said = wait_for("the callback", || {
        lent_there.poll();
        lent_here.poll();
        attempt.said.take()
    });
    assert!(said.contains("help: note what happened"), "{said}");
    wait_for("the leave of what it dropped", || {
        lent_here.poll();
        lent_there.poll();
        receive(&mut target).is_err().then_some(())
    });
    drop((target, attempt));
    assert!(lent_here.let_go() && lent_there.let_go());
    drop((listener, over));
    here.end();
    there.end();
}

#[test]
fn a_call_that_was_heard_and_is_not_asked_about_is_left() {
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| Application::new(UCS_THREAD_MODE_SINGLE, UCP_FEATURE_AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(true).unwrap(),
        there.lend(true).unwrap(),
    );
    let over = lent_here.over(ep);
    let mut listener = lent_there.listen(&ListenConfig::new(LIMITS)).unwrap();
    let calling = over.call().unwrap();
    let mut target = wait_for("the target", || {
        lent_here.poll();
        listener.accept()
    });
    wait_for("the welcome", || {
        lent_there.poll();
        lent_here.poll();
        let locked = lent_here.0.lock();
        let mut connections = locked.state.connections.values();
        connections
            .all(|connection| matches!(connection.stage, Stage::Open { .. }))
            .then_some(())
    });
    drop(calling);
    wait_for("its leave", || {
        lent_here.poll();
        lent_there.poll();
        receive(&mut target).is_err().then_some(())
    });
    wait_for("the end of it", || {
        lent_there.poll();
        lent_here.poll();
        lent_here.0.lock().state.connections.is_empty().then_some(())
    });

    // A target that rests hears of what the application knows.
    let (source, mut target) = meet(&mut *listener, over.call().unwrap());
    let mut keys = Vec::new();
    target.rx.park();
    listener.ready(&mut keys);
    keys.clear();
    let theirs = {
        let locked = lent_there.0.lock();
        let connections = locked.state.connections.values();
        let ep = connections
            .map(|connection| connection.ep)
            .find(|ep| !ep.is_null());
        ep.unwrap()
    };
    lent_there.peer_gone(theirs);
    listener.ready(&mut keys);
    assert!(keys.contains(&target.key) && receive(&mut target).is_err());
    drop((source, target));
    assert!(lent_here.let_go() && lent_there.let_go());
    drop((listener, over));
    here.end();
    there.end();
}

#[test]
fn a_worker_of_one_thread_is_served_by_no_others() {
    if !has_ucx() {
        return;
    }
    for (thread_mode, one) in [(UCS_THREAD_MODE_SINGLE, true), (UCS_THREAD_MODE_MULTI, false)] {
        let application = Application::new(thread_mode, UCP_FEATURE_AM);
        // SAFETY: both live until `end`, which is called behind `close`; this thread alone uses them, and who serves.
        let lent = unsafe {
            crate::ucx::Worker::from_raw(
                application.context,
                application.worker,
                crate::ucx::WorkerOptions::new(9),
            )
        };
        let lent = lent.unwrap();
        let listen = || crate::Target::builder().listen_on(&lent).unwrap();
        let value = Arc::new(AtomicU64::new(0));
        let refused = |end: Option<TargetError>| match end {
            Some(error @ TargetError::OneThread) => {
                assert!(one && error.to_string().contains("UCS_THREAD_MODE_MULTI"));
            }
            None => assert!(!one),
            Some(other) => panic!("{other}"),
        };
        refused(listen().spawn(0u64).map(|serving| drop(serving.stop())).err());
        refused(
            listen()
                .spawn_shared(value.clone(), 2)
                .map(|serving| drop(serving.stop()))
                .err(),
        );
        for (threads, fits) in [(1, true), (2, !one)] {
            let mut target = listen();
            target.stop_handle().stop();
            let served = target.serve_shared(&*value, threads);
            assert_eq!(served.is_ok(), fits, "{served:?}");
        }
        lent.close().unwrap();
        application.end();
    }
}

#[test]
fn a_worker_without_active_messages_is_refused() {
    if !has_ucx() {
        return;
    }
    let application = Application::new(UCS_THREAD_MODE_SINGLE, UCP_FEATURE_TAG);
    match application.lend(true).map(drop) {
        Err(Unfit::Refused(refused)) => assert!(refused.doing.contains("UCP_FEATURE_AM"), "{refused:?}"),
        // A UCX that was built without checks of parameters says nothing.
        other => eprintln!("not tested: {other:?}"),
    }
    application.end();
}
