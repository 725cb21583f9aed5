//! Workers of an application's: which threads use them, what makes progress, and what is left when they go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::ucx::{
    Attributes, Callback, Endpoint, Features, Flags, Handler, Library, Message, Mode, Multi, Operation,
    Operations, Single, Worker,
};

use super::*;
use crate::TargetError;
use crate::os::EventFd;
use crate::transport::ucx::attached::Attached;
use crate::transport::ucx::events::EventQueue;
use crate::transport::ucx::handshake::Hello;
use crate::transport::ucx::header::{Name, Notice};
use crate::transport::ucx::table::Stage;
use crate::transport::ucx::{Calling, Engine, Over, WorkerError, WorkerOptions};
use crate::transport::{ConnectError, ListenError};

/// The id of the application's own active messages.
const THEIRS: u16 = 5;

/// An application: a context and a worker.
pub(super) struct Application<M: Mode>(pub(super) Worker<CallsBack, M>);

impl<M: Mode> Application<M> {
    pub(super) fn new(features: Features) -> Self {
        Self::of(features, false)
    }

    /// `aligns`: so that bodies stay in UCX's buffers.
    fn of(features: Features, aligns: bool) -> Self {
        let ucx = Library::load().unwrap();
        let config = ucx.config().unwrap();
        let context = ucx.context(&config, features | Features::THREADS).unwrap();
        let context = match aligns {
            true => context.am_alignment(BODY_ALIGN),
            false => context,
        };
        Self(context.worker(CallsBack::default()).unwrap())
    }

    pub(super) fn lend(&self, progress: bool) -> Result<Arc<Engine>, WorkerError> {
        self.lend_with(WorkerOptions::new(9).progress(progress))
    }

    pub(super) fn lend_with(&self, options: WorkerOptions) -> Result<Arc<Engine>, WorkerError> {
        let (context, worker) = self.0.as_raw();
        // SAFETY: both live as long as `self`, which goes after `detach`.
        unsafe { Engine::attach(self.0.library(), context, worker, options) }
    }

    pub(super) fn endpoint<N: Mode>(&mut self, to: &Application<N>) -> Endpoint {
        let address = to.0.address().unwrap();
        // SAFETY: the address of a worker that is alive.
        unsafe { self.0.connect_to_worker(&address, Default::default()) }.unwrap()
    }
}

/// Two applications whose workers are lent: one to a target, the other to its sources.
pub(super) struct Lent<M: Mode> {
    pub(super) here: Application<M>,
    pub(super) there: Application<M>,
    /// From here to there.
    pub(super) ep: Endpoint,
    pub(super) lent_here: Arc<Engine>,
    pub(super) lent_there: Arc<Engine>,
    pub(super) over_there: Over,
    pub(super) listener: Box<dyn Listener>,
}

impl<M: Mode> Lent<M> {
    pub(super) fn new() -> Self {
        Self::of(false)
    }

    /// As [`Application::of`].
    pub(super) fn of(aligns: bool) -> Self {
        let [mut here, there] = [(); 2].map(|()| Application::<M>::of(Features::AM, aligns));
        let ep = here.endpoint(&there);
        let [lent_here, lent_there] = [&here, &there].map(|application| application.lend(true).unwrap());
        Self {
            over_there: over(&lent_here, &ep),
            listener: lent_there.listen(&ListenConfig::new(LIMITS)).unwrap(),
            here,
            there,
            ep,
            lent_here,
            lent_there,
        }
    }
}

fn over(engine: &Arc<Engine>, endpoint: &Endpoint) -> Over {
    // SAFETY: of its worker; the tests drop it after what goes over it.
    unsafe { engine.over(endpoint.as_raw(), crate::hello::invoking(usize::MAX)) }
}

/// A connection between two workers of this thread.
pub(super) fn meet(listener: &mut dyn Listener, mut calling: Calling) -> (Link, Link) {
    let mut target = None;
    let source = wait_for("a connection", || {
        let accepted = listener.accept();
        target = target.take().or(accepted);
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

/// An application that sends, and then progresses its worker by itself, calls nothing of ours that would send what was gathered.
#[test]
fn nothing_is_gathered_on_a_worker_of_the_applications() {
    if !has_ucx() {
        return;
    }
    let mut lent = Lent::<Single>::new();
    let calling = lent.over_there.call().unwrap();
    let (mut source, mut target) = meet(&mut *lent.listener, calling);
    let id = lent.lent_here.lock().state.connections.ids()[0];
    let busy = |messages| {
        let mut locked = lent.lent_here.lock();
        let connection = locked.state.connections.get_mut(&id).unwrap();
        assert!(connection.pack.is_none());
        // As if UCX had not sent it.
        connection.packed_under_way = messages;
    };
    busy(1);
    source.tx().hold();
    for n in 0..3 {
        send(&mut source, &content(n, 8)).unwrap().unwrap();
        busy(1);
    }
    source.tx().flush();
    busy(0);
    for n in 0..3 {
        let frame = wait_for("a frame", || {
            lent.here.0.progress();
            receive(&mut target).unwrap()
        });
        assert_eq!(frame, (n + 1, content(n, 8)));
    }
    drop((source, target));
    let Lent {
        lent_here,
        lent_there,
        ..
    } = &lent;
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
}

#[test]
fn a_worker_of_one_thread_is_used_there_alone_and_left_in_any_order() {
    if !has_ucx() {
        return;
    }
    let [mut here, there] = [(); 2].map(|()| Application::<Single>::new(Features::AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(true).unwrap(),
        there.lend(true).unwrap(),
    );
    let over_there = over(&lent_here, &ep);

    // No target listens there yet: the source is told, and may try again.
    let mut calling = over_there.call().unwrap();
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
    let (mut one, mut one_there) = meet(&mut *listener, over_there.call().unwrap());
    let (mut other, mut other_there) = meet(&mut *listener, over_there.call().unwrap());
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
    lent_here.peer_gone(ep.as_raw());
    assert!(matches!(receive(&mut other), Err(LinkError::Closed)));
    assert!(matches!(
        over_there.call().map(drop),
        Err(ConnectError::Refused { .. })
    ));
    drop(other);

    // A worker that is taken back leaves its links behind, and is not used by them.
    assert!(lent_there.detach().is_ok());
    assert!(matches!(receive(&mut other_there), Err(LinkError::Closed)));
    assert!(other_there.tx().reserve(1, 1).is_err() && listener.accept().is_none());
    assert!(lent_here.detach().is_ok());
    let (calling, listening) = (over_there.call(), lent_here.listen(&ListenConfig::new(LIMITS)));
    let (calling, listening) = (calling.map(drop).unwrap_err(), listening.map(drop).unwrap_err());
    assert!(matches!(calling, ConnectError::WorkerClosed), "{calling:?}");
    assert!(matches!(listening, ListenError::WorkerClosed), "{listening:?}");
    for text in [calling.to_string(), listening.to_string()] {
        assert!(
            text.contains("closed; help: lend the runtime another one"),
            "{text}"
        );
    }
    drop((there, ep, here));
    drop((
        other_there,
        one_there,
        listener,
        lent_there,
        over_there,
        lent_here,
    ));
}

#[test]
fn an_application_makes_progress_while_others_wait() {
    if !has_ucx() {
        return;
    }
    let [mut here, there] = [(); 2].map(|()| Application::<Multi>::new(Features::AM));
    let (ep, lent_here, lent_there) = (
        here.endpoint(&there),
        here.lend(false).unwrap(),
        there.lend(false).unwrap(),
    );
    let over_there = over(&lent_here, &ep);
    let mut listener = lent_there.listen(&ListenConfig::new(LIMITS)).unwrap();
    // No other thread makes any.
    assert!(matches!(
        over_there.connect(Instant::now() + Duration::from_millis(200)),
        Err(ConnectError::Timeout { .. })
    ));
    let ended = AtomicBool::new(false);
    let mut workers = [&here, &there].map(|application| {
        let (context, worker) = application.0.as_raw();
        // SAFETY: of several threads, and alive until the other thread has ended.
        unsafe {
            let library = application.0.library();
            let attributes = library.query(worker).unwrap();
            assert!(!attributes.is_single_threaded);
            Worker::<CallsBack, Multi>::attach(library, context, worker, attributes, CallsBack::default())
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let workers = &mut workers;
            while !ended.load(Ordering::Relaxed) {
                for worker in &mut *workers {
                    worker.progress();
                }
                std::thread::yield_now();
            }
        });
        let target = scope.spawn(|| {
            // The call whose source has given up is answered with a `FIN`.
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
        let mut source = over_there.connect(soon()).unwrap();
        for n in 0..300 {
            let body = content(n, n as usize * 577 % 60_000);
            send(&mut source, &body).unwrap().unwrap();
            let deadline = soon();
            let back = loop {
                if let Some((_, back)) = receive(&mut source).unwrap() {
                    break back;
                }
                assert!(Instant::now() < deadline);
                if source.rx().arm() {
                    source.waiter.sleep(deadline, None);
                }
                source.rx().disarm();
            };
            assert!(back == body);
        }
        let links = target.join().unwrap();
        drop((source, links));
        assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
        ended.store(true, Ordering::Relaxed);
    });
    drop((workers, listener, over_there, ep));
    drop((here, there));
}

/// What a callback of the application's tries, and what came of it.
struct Attempt {
    lent: Arc<Engine>,
    left: Option<Link>,
    said: Arc<Mutex<Option<String>>>,
}

/// The application's handler.
#[derive(Default)]
pub(super) struct CallsBack(Option<Attempt>);

impl Handler for CallsBack {
    type Tag = ();

    fn message(&mut self, _: &mut Callback<'_, Self>, _: Message<'_>) {
        let Some(attempt) = &mut self.0 else { return };
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attempt.lent.poll()));
        let said = panic.map_err(|panic| (*panic.downcast_ref::<&str>().unwrap()).to_owned());
        *attempt.said.lock().unwrap() = said.err();
        drop(attempt.left.take());
    }
}

#[test]
fn a_callback_that_calls_back_panics_and_may_drop_what_it_has() {
    if !has_ucx() {
        return;
    }
    let Lent {
        mut here,
        mut there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Multi>::new();
    let back = there.endpoint(&here);
    let (source, mut target) = meet(&mut *listener, over_there.call().unwrap());
    let said = Arc::new(Mutex::new(None));
    here.0.handler().0 = Some(Attempt {
        lent: lent_here.clone(),
        left: Some(source),
        said: Arc::clone(&said),
    });
    here.0.receive(THEIRS).unwrap();
    let message = Operation::Message {
        endpoint: &back,
        id: THEIRS,
        header: 0..0,
        data: 0..0,
        flags: Flags::default(),
    };
    drop(there.0.start(message, vec![]).unwrap());
    let said = wait_for("the callback", || {
        lent_there.poll();
        lent_here.poll();
        said.lock().unwrap().take()
    });
    assert!(said.contains("help: note what happened"), "{said}");
    wait_for("the leave of what it dropped", || {
        lent_here.poll();
        lent_there.poll();
        receive(&mut target).is_err().then_some(())
    });
    drop(target);
    drop(here.0.handler().0.take());
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

#[test]
fn a_call_that_was_answered_and_is_dropped_is_closed() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::new();
    let calling = over_there.call().unwrap();
    let mut target = wait_for("the target", || {
        lent_here.poll();
        listener.accept()
    });
    wait_for("the welcome", || {
        lent_there.poll();
        lent_here.poll();
        let locked = lent_here.lock();
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
        lent_here.lock().state.connections.is_empty().then_some(())
    });

    // A target that rests hears of what the application knows.
    let (source, mut target) = meet(&mut *listener, over_there.call().unwrap());
    let mut keys = Vec::new();
    target.rx().park();
    listener.ready(&mut keys);
    keys.clear();
    let theirs = {
        let locked = lent_there.lock();
        let connections = locked.state.connections.values();
        let mut endpoints = connections.filter_map(|connection| connection.endpoint.as_ref());
        endpoints.next().unwrap().as_raw()
    };
    lent_there.peer_gone(theirs);
    listener.ready(&mut keys);
    assert!(keys.contains(&target.key.unwrap()) && receive(&mut target).is_err());
    drop((source, target));
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

/// As many half-open connections as there may be, of hellos that came by messages: the next source is told that no target listens at
/// this moment, until one of them has gone. A hello to a connection that is not there is none.
#[test]
fn hellos_by_message_are_bounded() {
    const MOST: usize = crate::transport::ucx::acceptor::MOST_HALF_OPEN;
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::new();
    let hello = Hello {
        hello: crate::hello::invoking(usize::MAX),
        name: Name::new(3, 4),
        nonce: crate::transport::ucx::handshake::Nonce::NONE,
        address: None,
    }
    .encode(crate::transport::ucx::handshake::Mode::Messages);
    // Refused, and half open until its source has gone.
    let mut newer = hello.clone();
    newer[8] += 1;
    let say = |name: Name, body: &[u8]| {
        let mut locked = lent_here.lock();
        // SAFETY: the endpoint lives longer than the engine is used.
        let endpoint = unsafe { locked.worker.borrow_endpoint(ep.id()) };
        let id = locked.state.insert(endpoint, Stage::Calling);
        locked.state.connections.get_mut(&id).unwrap().peer = name;
        locked.notify_peer(id, Notice::Hello, 0, body);
    };
    let half_open = || lent_there.lock().state.half_open().collect::<Vec<_>>();
    say(Name::new(77, 5), &hello);
    for _ in 0..MOST - 1 {
        say(Name::NONE, &newer);
    }
    // Messages over one endpoint arrive in order: after the answer to the last one the others have been looked at.
    let (first, first_there) = meet(&mut *listener, over_there.call().unwrap());
    assert_eq!(half_open().len(), MOST - 1);
    for _ in 0..3 {
        say(Name::NONE, &newer);
    }
    let mut late = over_there.call().unwrap();
    let error = wait_for("an answer", || {
        assert!(listener.accept().is_none());
        late.poll()
    });
    let error = error.unwrap_err();
    assert!(
        matches!(error, ConnectError::NobodyListens { .. }) && error.may_pass(),
        "{error}"
    );
    let turned_away = half_open();
    assert_eq!(turned_away.len(), MOST);
    lent_there.lock().forget(turned_away[0]);
    let (second, second_there) = meet(&mut *listener, over_there.call().unwrap());
    drop((first, first_there, second, second_there));
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

#[test]
fn a_worker_of_one_thread_is_served_by_no_others() {
    if !has_ucx() {
        return;
    }
    served_by::<Single>(true);
    served_by::<Multi>(false);

    fn served_by<M: Mode>(one: bool) {
        let application = Application::<M>::new(Features::AM);
        let (context, worker) = application.0.as_raw();
        // SAFETY: both live until the end of this function, after `close`; this thread alone uses them, and those that serve.
        let lent =
            unsafe { crate::ucx::Worker::from_raw(context, worker, crate::ucx::WorkerOptions::new(9)) };
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
        std::thread::scope(|scope| match scope.spawn(|| lent.close()).join().unwrap() {
            Err(error @ WorkerError::OtherThread) => {
                assert!(
                    one && error.to_string().contains("help: close it there"),
                    "{error}"
                );
            }
            closed => assert!(!one && closed.is_ok(), "{closed:?}"),
        });
        lent.close().unwrap();
    }
}

#[test]
fn a_worker_with_short_headers_is_refused() {
    if !has_ucx() {
        return;
    }
    let application = Application::<Single>::new(Features::AM);
    let (context, worker) = application.0.as_raw();
    let attributes = Attributes {
        is_single_threaded: true,
        max_am_header: 39,
    };
    // SAFETY: both live as long as `application`, which this thread alone uses, as the attributes say.
    let worker = unsafe {
        Worker::attach(
            application.0.library(),
            context,
            worker,
            attributes,
            EventQueue::new(None),
        )
    };
    let event_fd = Arc::new(EventFd::new().unwrap());
    let error = Attached::new(&worker, attributes, event_fd, WorkerOptions::new(9))
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(error, WorkerError::Header { max_am_header: 39 }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("ifunc needs 40") && text.contains("help: make its context"),
        "{text}"
    );
}

#[test]
fn a_worker_without_active_messages_is_refused() {
    if !has_ucx() {
        return;
    }
    let application = Application::<Single>::new(Features::TAG);
    match application.lend(true).map(drop) {
        Err(WorkerError::Ucx { doing, .. }) => assert!(doing.contains("UCP_FEATURE_AM"), "{doing}"),
        // A UCX that was built without checks of parameters says nothing.
        other => eprintln!("not tested: {other:?}"),
    }
}
