//! What happens at a target's socket before UCX has a part in it, and what a hello over UCX is worth without it.

#[cfg(feature = "tls")]
mod keys;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use ::ucx::Library;
use ifunc_abi::hello::{Exchange, TransportTag, WIRE_VERSION};

use super::in_hand::{OfSource, Pair, Served};
use super::peer::{Peer, ask};
use super::two_processes::{Other, echoes};
use super::*;
use crate::os::raise_descriptor_limit_near;
use crate::policy::Policy;
use crate::transport::config::PEER_TIMEOUT;
use crate::transport::half_open::MOST_HALF_OPEN;
use crate::transport::ucx::engine::{Engine, LINGER, Visited};
use crate::transport::ucx::exchange::liveness::QUIET;
use crate::transport::ucx::handshake::{Hello, Nonce, Welcome};
use crate::transport::ucx::header::{Head, Name, Notice};
use crate::transport::ucx::table::Stage;
use crate::transport::window::Credits;
use crate::transport::{ConnectConfig, ConnectError};

fn stranger(at: &Address) -> TcpStream {
    let stream = TcpStream::connect(host_port(at).resolve().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The message of a source.
fn message() -> Vec<u8> {
    let mut message = Vec::new();
    let asked = Exchange::Worker {
        nonce: 0,
        address: b"none",
    };
    asked.encode(TransportTag::UCX, &mut message);
    message
}

/// What aborted the process while UCX listened at the port, and other bytes that are no source's.
#[test]
fn bytes_of_strangers_end_their_own_connection_alone() {
    if !has_ucx() {
        return;
    }
    let other = Other::start("echo", "ucx://127.0.0.1:0", &[]);
    let mut honest = connect(&other.address(), soon()).unwrap();
    let whole = message();
    let longer = [&whole[..], b"x"].concat();
    let mut huge = whole.clone();
    huge[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases: [&[u8]; 9] = [
        &[0; 24],
        &[0; 41],
        &[0xff; 1 << 14],
        b"GET / HTTP/1.1\r\n\r\n",
        &[22, 3, 1, 2, 0, 1],
        b"iambic",
        &longer,
        &huge,
        &whole[..whole.len() - 1],
    ];
    for (n, bytes) in cases.into_iter().enumerate() {
        let mut stranger = stranger(&other.address());
        // It may be closed in the middle of it.
        let _ = stranger.write_all(bytes);
        if bytes.len() < whole.len() && bytes.starts_with(b"ifunc") {
            stranger.shutdown(Shutdown::Write).unwrap();
        }
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        // The only one that is answered asks for a key.
        assert_eq!(answer.is_empty(), bytes[0] != 22, "case {n}: {answer:?}");
        echoes(&mut honest, n as u32, 1000).unwrap();
    }
    let mut late = connect(&other.address(), soon()).unwrap();
    echoes(&mut late, 1, 1000).unwrap();
}

/// As many silent connections as exhausted the descriptors of a process whose UCX listened at the port, and span its processor.
#[test]
fn silent_connections_take_a_bounded_number_of_places() {
    if !has_ucx() {
        return;
    }
    let other = Other::start("echo", "ucx://127.0.0.1:0", &[]);
    let mut honest = connect(&other.address(), soon()).unwrap();
    echoes(&mut honest, 1, 1000).unwrap();
    let before = other.fds().len();
    let silent = Vec::from_iter((0..1200).map(|_| {
        let stream = stranger(&other.address());
        raise_descriptor_limit_near(std::os::fd::AsFd::as_fd(&stream));
        stream
    }));
    let mut late = connect(&other.address(), soon()).unwrap();
    for n in 0..20 {
        echoes(&mut honest, n, 1000).unwrap();
        echoes(&mut late, n, 1000).unwrap();
        let now = other.fds().len();
        assert!(
            now <= before + MOST_HALF_OPEN + 32,
            "{before} descriptors, then {now}"
        );
    }
    let ticks = other.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let took = other.ticks() - ticks;
    assert!(
        took <= 20,
        "{took} ticks of 10 ms in 1 s, beside connections that say nothing"
    );
    drop(silent);
    // Each had its time.
    wait_for("the places of those that left", || {
        (other.fds().len() <= before + 32).then_some(())
    });
}

#[test]
fn a_hello_without_the_nonce_of_an_exchange_is_dropped() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Messages), small()).unwrap();
    let to = address(&*listener);
    let mut peer = Peer::new(&to);
    let nonce = peer.nonce;
    // The first 64 bits are the name, without which a message reaches no connection.
    for bit in [64, 127] {
        peer.nonce = Nonce(nonce.0 ^ 1 << bit);
        peer.hello();
    }
    peer.nonce = Nonce::NONE;
    peer.hello();
    // One that has the address of the worker, and asked nobody: from its own worker, with and without an address to answer at.
    let ucx = Library::load().unwrap();
    let engine = Engine::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT, Mode::Messages).unwrap();
    {
        let mut locked = engine.lock();
        let worker = {
            let routes = ask(&peer.engine, &to).unwrap();
            routes.worker
        };
        let own = locked.address().unwrap();
        let endpoint = locked.route_to(&worker).unwrap();
        let id = locked.state.insert(endpoint, Stage::Calling);
        for address in [Some(own), None] {
            let hello = Hello {
                hello: ConnectConfig::default().hello,
                name: Name::new(3, 4),
                nonce,
                address,
            };
            locked.notify_peer(id, Notice::Hello, 0, &hello.encode(Mode::Messages));
        }
    }
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        engine.lock().progress();
        assert!(listener.accept().is_none());
        assert!(!peer.is_gone());
    }
    // The right one is still taken, and no second time.
    peer.nonce = nonce;
    peer.hello();
    let mut link = wait_for("the handshake", || {
        peer.look(|_| ());
        listener.accept()
    });
    let hello = peer.greeting();
    peer.send(
        Head::notice(Notice::Hello, 0, hello.len(), Credits::default()),
        &hello,
    );
    wait_for("the end of one that says hello twice", || {
        assert!(listener.accept().is_none());
        let _ = receive(&mut link);
        peer.is_gone().then_some(())
    });
    engine.lock().forget_all();
}

#[test]
fn a_source_from_an_address_that_is_not_admitted_gets_the_reason() {
    if !has_ucx() {
        return;
    }
    let policy = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
    let config = ListenConfig {
        connect: policy.connect.into(),
        ..small()
    };
    let listener = listen(&any(Mode::Messages), config).unwrap();
    let error = connect(&address(&*listener), soon()).map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("127.0.0.1") && text.contains("`Policy::connect_from`"),
        "{text}"
    );
}

/// What a source is told of something else that listens at the address. Nothing that it sends makes the source wait for longer than its
/// time, or take memory.
#[test]
fn a_source_is_told_what_is_wrong_with_an_answer() {
    if !has_ucx() {
        return;
    }
    let of = |exchange: Exchange<'_>, tag| {
        let mut message = Vec::new();
        exchange.encode(tag, &mut message);
        message
    };
    let tag = TransportTag::UCX;
    let worker = |nonce, address| of(Exchange::Worker { nonce, address }, tag);
    let mut newer = worker(1, b"any");
    newer[8] += 1;
    let mut huge = worker(1, b"any");
    huge[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let version = format!("speaks version {}", WIRE_VERSION + 1);
    for (answer, told) in [
        (b"HTTP/1.1 400 Bad Request".to_vec(), "it does not say what it is"),
        (vec![], "it closed the connection before the handshake was over"),
        (newer[..12].to_vec(), &*version),
        (huge, "of no known form"),
        (worker(0, b"any"), "of no known form"),
        (worker(1, b"any"), "its end is missing"),
        (worker(1, &[7; 100]), "its checksum is another one"),
        (
            of(Exchange::Refused(b"no room"), tag),
            "refused the connection: no room",
        ),
        (
            of(Exchange::Busy(b"no room"), tag),
            "no connection at this moment: no room",
        ),
        (
            of(Exchange::Refused(b""), TransportTag::UCX_PUT),
            "in terms of another transport",
        ),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let to: Address = format!("ucx://{}", other.local_addr().unwrap()).parse().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut source, _) = other.accept().unwrap();
            let mut first = [0; 20];
            source.read_exact(&mut first).unwrap();
            source.write_all(&answer).unwrap();
            source.shutdown(Shutdown::Write).unwrap();
            let _ = source.read_to_end(&mut Vec::new());
        });
        let error = connect(&to, soon()).map(drop).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
        answering.join().unwrap();
    }
}

/// Two nodes that connect to each other at the same time use one endpoint, and the end of one connection is not that of the other.
#[test]
fn connections_of_two_workers_end_one_by_one() {
    if !has_ucx() {
        return;
    }
    let mut nodes = [(); 2].map(|()| listen(&any(Mode::Messages), small()).unwrap());
    let to = nodes.each_ref().map(|node| address(&**node));
    let [mut one, mut other] = [(0, 1), (1, 0)].map(|(here, there): (usize, usize)| {
        let (connector, to) = (nodes[here].connector().unwrap(), to[there].clone());
        Some(std::thread::spawn(move || {
            connector
                .connect(&to, &ConnectConfig::default(), soon())
                .unwrap()
                .unwrap()
        }))
    });
    let mut accepted = [None, None];
    wait_for("both connections", || {
        for (node, accepted) in nodes.iter_mut().zip(&mut accepted) {
            let more = node.accept();
            *accepted = accepted.take().or(more);
        }
        let all = [&one, &other]
            .into_iter()
            .flatten()
            .all(|dialing| dialing.is_finished());
        (all && accepted.iter().all(Option::is_some)).then_some(())
    });
    let [one, mut other] = [one.take(), other.take()].map(|dialing| dialing.unwrap().join().unwrap());
    let [of_other, of_one] = accepted.map(Option::unwrap);
    let mut of_other = of_other;
    drop((one, of_one));
    for n in 1..=20 {
        wait_for("credit", || {
            nodes.iter_mut().for_each(|node| assert!(node.accept().is_none()));
            send(&mut other, b"still").unwrap()
        });
        let (number, body) = wait_for("a frame", || {
            nodes.iter_mut().for_each(|node| assert!(node.accept().is_none()));
            receive(&mut other).unwrap();
            receive(&mut of_other).unwrap()
        });
        assert_eq!((number, &body[..]), (n, &b"still"[..]));
    }
    assert!(!other.waiter.is_peer_closed() && !of_other.waiter.is_peer_closed());
}

/// A source that has the lock of its engine while it waits learns that the target has left, and the background thread does not wait
/// for the lock.
#[test]
fn a_target_that_leaves_in_the_handshake_is_missed_at_once() {
    if !has_ucx() {
        return;
    }
    let served = Served::new(Mode::Messages, &small());
    let to = served.to.clone();
    let source = std::thread::spawn(move || connect(&to, soon()).map(drop));
    // It is answered by the background thread, and not by UCX, because nothing polls here.
    wait_for("its place", || {
        (served.engine.lock().state.half_open().count() == 1).then_some(())
    });
    let began = Instant::now();
    served.forget_all();
    let error = source.join().unwrap().unwrap_err();
    // The next attempt finds whether it is still there.
    assert!(error.may_pass(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("closed the connection before the handshake was over"),
        "{text}"
    );
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A process that sends and ends at once: its socket is closed first, and what it sent is still on its way.
#[test]
fn what_a_peer_sent_before_it_left_arrives() {
    if !has_ucx() {
        return;
    }
    const FRAMES: u32 = 3000;
    let mut pair = Pair::new(Mode::Messages, &ring(4096, 1 << 24));
    for n in 1..=FRAMES {
        send(&mut pair.source, &content(n, 4000)).unwrap().unwrap();
    }
    let locked = &mut pair.here.lock();
    locked.state.connections.get_mut(&pair.id).unwrap().socket = None;
    // The target runs something else meanwhile: only the background thread takes what comes.
    let until = Instant::now() + 4 * QUIET;
    while Instant::now() < until {
        locked.progress();
    }
    let mut next = 1;
    let gone = wait_for("the end", || {
        locked.progress();
        match receive(&mut pair.target) {
            Ok(None) => None,
            Ok(Some((n, body))) => {
                assert_eq!((n, body), (next, content(next, 4000)));
                next += 1;
                None
            }
            Err(gone) => Some(gone),
        }
    });
    assert_eq!((next - 1, gone), (FRAMES, LinkError::Closed));
}

/// The end is known only when all has come that the peer had sent: a frame that was sent until then would be lost.
#[test]
fn nothing_is_sent_to_a_peer_that_has_left() {
    if !has_ucx() {
        return;
    }
    for mode in [Mode::Messages, Mode::Puts] {
        let mut pair = Pair::new(mode, &small());
        send(&mut pair.target, b"before").unwrap().unwrap();
        pair.here
            .lock()
            .state
            .connections
            .get_mut(&pair.id)
            .unwrap()
            .socket = None;
        // The end of the socket arrives some time after it was sent. Under the lock no thread follows it.
        let locked = pair.served.engine.lock();
        let socket = locked.state.connections[&pair.of_target].socket.as_ref().unwrap();
        wait_for("the end of the socket", || socket.is_hung_up().then_some(()));
        drop(locked);
        let link = &mut pair.target;
        assert!(!link.waiter.check_peer_closed(), "{mode:?}: it is over at once");
        assert_eq!(send(link, b"after"), Ok(None), "{mode:?}");
        let gone = wait_for("the end", || {
            link.waiter.check_peer_closed().then(|| send(link, b"after"))
        });
        assert_eq!(gone, Err(LinkError::Closed), "{mode:?}");
    }
}

/// The end of an engine may wait for peers, and the thread that watches all sockets does not.
#[test]
fn the_last_owner_of_an_engine_may_leave_while_it_is_visited() {
    if !has_ucx() {
        return;
    }
    let pair = Pair::new(Mode::Messages, &small());
    let Pair {
        here,
        source,
        target,
        served,
        ..
    } = pair;
    // The engine lingers until the target has acknowledged the end, and no thread polls the target here.
    drop(source);
    let engine = Arc::downgrade(&here);
    let visited = Visited::of(&engine).unwrap();
    OfSource::leave(here);
    let began = Instant::now();
    drop(visited);
    assert!(began.elapsed() < LINGER / 2, "{:?}", began.elapsed());
    assert!(Visited::of(&engine).is_none());
    drop((target, served));
}

/// The memory into which a peer may still put is kept while the endpoint is open, and not without a limit.
#[test]
fn rings_of_connections_that_are_over_are_kept_within_a_limit() {
    if !has_ucx() {
        return;
    }
    let pair = Pair::new(Mode::Puts, &small());
    let mut locked = pair.here.lock();
    let route = locked.state.connections[&pair.id].route.unwrap();
    let mut rounds = 0;
    while locked.state.routes.contains_key(&route) {
        rounds += 1;
        assert!(rounds < 100, "no limit");
        // Another connection to the same worker, which is over.
        // SAFETY: the route's endpoint, which is open.
        let endpoint = unsafe { locked.worker.borrow_endpoint(route) };
        let id = locked.state.insert(endpoint, Stage::Calling);
        let size = small().to_target;
        let welcome = Welcome {
            hello: ConnectConfig::default().hello,
            to_target: size,
            to_source: size,
        };
        locked.offer_ring(id, welcome);
        locked.forget(id);
    }
    assert!(rounds > 2);
    let connection = &locked.state.connections[&pair.id];
    assert!(connection.gone.is_some() && connection.endpoint.is_none());
    let kept = locked.state.closing.values().map(Vec::len).sum::<usize>();
    assert!(
        kept == rounds || locked.state.closing.is_empty(),
        "{kept} of {rounds}"
    );
}

/// UCX, which would keep a socket for each, is not asked to connect to sources that have left when they would be answered.
#[test]
fn a_source_that_left_before_it_is_answered_is_not_connected_to() {
    by(Mode::Messages, left_before_it_is_answered);
    by(Mode::Puts, left_before_it_is_answered);
}

fn left_before_it_is_answered(mode: Mode) {
    let served = Served::new(mode, &small());
    let here = super::in_hand::engine(mode);
    let first = ask(&here, &served.to).unwrap();
    let address = here.lock().address().unwrap().to_bytes();
    let mut asks = Vec::new();
    let asked = Exchange::Worker {
        nonce: 0,
        address: &address,
    };
    asked.encode(mode.tag(), &mut asks);
    {
        // The thread that answers waits for it.
        let _locked = served.engine.lock();
        for _ in 0..3 {
            stranger(&served.to).write_all(&asks).unwrap();
        }
    }
    // It answers one after the other.
    let last = ask(&here, &served.to).unwrap();
    let [first, last] = [first, last].map(|answered| answered.nonce.name().number());
    assert_eq!(last, first + 1, "connections were made in between");
}

/// A source that leaves after the exchange keeps no place.
#[test]
fn a_source_that_leaves_before_its_hello_is_forgotten() {
    if !has_ucx() {
        return;
    }
    let served = Served::new(Mode::Messages, &small());
    let here = super::in_hand::engine(Mode::Messages);
    let answered = ask(&here, &served.to).unwrap();
    assert_eq!(served.engine.lock().state.half_open().count(), 1);
    drop(answered);
    wait_for("its place", || {
        let mut locked = served.engine.lock();
        locked.progress();
        (locked.state.half_open().count() == 0 && locked.state.routes.is_empty()).then_some(())
    });
}
