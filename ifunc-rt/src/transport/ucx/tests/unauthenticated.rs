//! Unauthenticated peers: clients of UCX that are not sources, or not any more, and send anything.

use crate::transport::ConnectConfig;
use ::ucx::Library;

use super::peer::{Peer, frame};
use super::*;
use crate::transport::ConnectError;
use crate::transport::address::WorkerAddress;
use crate::transport::config::PEER_TIMEOUT;
use crate::transport::ucx::credits::{message_of, units};
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::handshake::{Hello, LONGEST, Nonce};
use crate::transport::ucx::header::{Head, Name, Notice};
use crate::transport::ucx::packed::{Entry, MAX_ENTRIES, encoded};
use crate::transport::ucx::table::Stage;
use crate::transport::window::Credits;

/// A target closes the connection of a peer that sends this, after the handshake if there is one, and goes on serving the others.
fn disconnects(what: &str, greets: bool, say: impl FnOnce(&Peer)) {
    disconnects_by(Mode::Messages, what, greets, say);
}

/// The same where frames go this way.
pub(super) fn disconnects_by(mode: Mode, what: &str, greets: bool, say: impl FnOnce(&Peer)) {
    let mut listener = listen(&any(mode), small()).unwrap();
    let to = address(&*listener);
    let peer = Peer::new(&to);
    let mut links = Vec::new();
    if greets {
        peer.hello();
        wait_for("the handshake", || {
            links.extend(listener.accept());
            peer.look(|locked| {
                let stage = &locked.state.connections[&peer.id].stage;
                matches!(stage, Stage::Open { .. } | Stage::Put(_)).then_some(())
            })
        });
    }
    say(&peer);
    wait_for(what, || {
        links.extend(listener.accept());
        for link in &mut links {
            if let Err(gone) = link.rx().peek().map(drop) {
                assert!(matches!(gone, LinkError::Malformed(_)), "{what}: {gone}");
            }
        }
        peer.is_gone().then_some(())
    });
    assert_eq!(links.len(), usize::from(greets), "{what}");
    for link in &mut links {
        // It may have been looked at before the others came.
        link.rx().release();
        let end = link.rx().peek().map(drop);
        assert!(matches!(end, Err(LinkError::Malformed(_))), "{what}: {end:?}");
        assert!(
            matches!(link.tx().reserve(0, 1).map(drop), Err(LinkError::Malformed(_))),
            "{what}"
        );
        assert!(link.waiter.is_peer_closed(), "{what}");
    }
    let source = std::thread::spawn(move || {
        let mut source = connect(&to, soon()).unwrap();
        send(&mut source, b"well").unwrap().unwrap();
    });
    let mut other = accept(&mut *listener);
    let (_, body) = wait_for("the others", || {
        listener.accept();
        receive(&mut other).unwrap()
    });
    assert_eq!(body, b"well");
    wait_for("the source to leave", || {
        listener.accept();
        source.is_finished().then_some(())
    });
    source.join().unwrap();
}

#[test]
fn peers_that_break_the_protocol_are_disconnected() {
    if !has_ucx() {
        return;
    }
    let none = Credits::default();
    disconnects("no magic", false, |peer| {
        peer.send(
            Head::notice(Notice::Hello, 0, 24, none),
            b"GET / HTTP/1.1 Host: any",
        );
    });
    disconnects("no hello at all", false, |peer| peer.send(frame(1, 3), b"abc"));
    disconnects("a hello that is too long", false, |peer| {
        peer.send(
            Head::notice(Notice::Hello, 0, LONGEST + 1, none),
            &[0; LONGEST + 1],
        );
    });
    disconnects("another length than said", true, |peer| {
        peer.send(frame(1, 4), b"abc")
    });
    disconnects("an unknown notice", true, |peer| {
        let mut head = Head::notice(Notice::Credit, 0, 0, none);
        head.words[0] = 0xabcd << 8;
        peer.send(head, b"");
    });
    disconnects("a second hello", true, Peer::hello);
    disconnects("a welcome", true, |peer| {
        peer.send(Head::notice(Notice::Welcome, 0, 0, none), b"")
    });
    disconnects("a second end", true, |peer| {
        // More than have come: the first is waited for.
        (0..2).for_each(|_| peer.send(Head::notice(Notice::Fin, 5, 0, none), b""));
    });
    disconnects("an acknowledgement of no end", true, |peer| {
        peer.send(Head::notice(Notice::FinAck, 0, 0, none), b"");
    });
    disconnects("a second greeting of one that was refused", false, |peer| {
        let mut newer = peer.greeting();
        newer[8] += 1;
        for _ in 0..2 {
            peer.send(Head::notice(Notice::Hello, 0, newer.len(), none), &newer);
        }
    });
    disconnects("more frames than credits", true, |peer| {
        (1..=3).for_each(|n| peer.send(frame(n, 1), b"x"));
    });
    disconnects("a larger body than a frame has, fetched", true, |peer| {
        let body = vec![1; 1 << 22];
        peer.send(frame(1, body.len()), &body);
    });
    disconnects("a larger body than a frame has", true, |peer| {
        let body = [1; (1 << 15) + 1];
        peer.send(frame(1, body.len()), &body);
    });
    for sequence in [0, 1, 4, u32::MAX] {
        disconnects("a number whose turn does not come", true, |peer| {
            peer.send(frame(1, 1), b"x");
            peer.send(frame(sequence, 1), b"x");
        });
    }
    disconnects("a number twice", true, |peer| {
        peer.send(frame(2, 1), b"x");
        peer.send(frame(2, 1), b"x");
    });
    let entry = |sequence, len| {
        let header = encoded(&Entry::of(&frame(sequence, len)), None);
        [&header[..], &[7; 64][..len.next_multiple_of(8)]].concat()
    };
    disconnects("more frames than credits in one message", true, |peer| {
        peer.send_packed(&[entry(1, 3), entry(2, 8), entry(3, 1)].concat());
    });
    disconnects("a number twice in one message", true, |peer| {
        peer.send_packed(&[entry(1, 0), entry(1, 0)].concat());
    });
    disconnects("an entry that is cut off in its header", true, |peer| {
        peer.send_packed(&[&entry(1, 3)[..], &entry(2, 0)[..8]].concat());
    });
    disconnects("an entry that is cut off in its body", true, |peer| {
        peer.send_packed(&[&entry(1, 3)[..], &entry(2, 9)[..24 + 7]].concat());
    });
    disconnects("more entries than a message may have", true, |peer| {
        let credit = encoded(&Entry::of(&Head::notice(Notice::Credit, 0, 0, none)), None);
        peer.send_packed(&credit.repeat(MAX_ENTRIES + 1));
    });
    disconnects("credits for what was not sent", true, |peer| {
        let credits = Credits {
            frames: 1,
            data: units(64),
        };
        peer.send(Head::notice(Notice::Credit, 0, 0, credits), b"");
    });
    disconnects("credits for what was not sent, in a frame", true, |peer| {
        let credits = Some(Credits { frames: 1, data: 0 });
        let head = Head {
            credits,
            ..frame(1, 1)
        };
        peer.send(head, b"x");
    });
    disconnects("fewer frames than sent", true, |peer| {
        peer.send(frame(1, 1), b"x");
        peer.send(Head::notice(Notice::Fin, 0, 0, none), b"");
    });
}

/// Messages with another name than the peer was told are dropped, also where the number in it is another connection's; its own name
/// still works.
#[test]
fn messages_with_another_name_are_dropped() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Messages), ring(8, 1 << 16)).unwrap();
    let to = address(&*listener);
    let peers = [(); 2].map(|()| {
        let peer = Peer::new(&to);
        peer.hello();
        let link = wait_for("the handshake", || {
            peer.look(|_| ());
            listener.accept()
        });
        let name = wait_for("the welcome", || {
            listener.accept();
            let peer = peer.look(|locked| locked.state.connections[&peer.id].peer);
            (peer != Name::NONE).then_some(peer)
        });
        (peer, link, name)
    });
    let [(first, mut mine, own), (second, mut its, other)] = peers;
    assert_ne!(own.number(), other.number());
    assert_ne!(own.0 >> 32, other.0 >> 32, "the same lot twice");
    let call = |name| {
        let mut locked = first.engine.lock();
        locked.state.connections.get_mut(&first.id).unwrap().peer = name;
    };
    let guessed = [
        Name(own.0 ^ 1 << 32),
        Name(own.0 ^ 1 << 63),
        Name(other.0 ^ 1 << 40),
        Name::new(other.number(), 0),
        Name::new(other.number(), (own.0 >> 32) as u32),
        Name::new(own.number(), (other.0 >> 32) as u32),
        Name::new(u32::MAX, 1),
        Name::new(0, 1),
    ];
    for name in guessed {
        call(name);
        // In one piece, with its body apart, and so large that it is fetched.
        for len in [1, 5000, 1 << 14] {
            first.send(frame(1, len), &vec![7; len]);
        }
        first.send(frame(9, 3), b"abcd");
        first.send(Head::notice(Notice::Fin, 0, 0, Credits::default()), b"");
    }
    call(own);
    first.send(frame(1, 4), b"mine");
    second.send(frame(1, 3), b"its");
    let (mut bodies, links) = ([None, None], [&mut mine, &mut its]);
    for (link, body) in links.into_iter().zip(&mut bodies) {
        *body = Some(wait_for("the frame to the right name", || {
            first.look(|_| ());
            second.look(|_| ());
            listener.accept();
            receive(link).unwrap()
        }));
    }
    assert_eq!(bodies, [Some((1, b"mine".to_vec())), Some((1, b"its".to_vec()))]);
    assert!(!first.is_gone() && !second.is_gone());
    assert!(receive(&mut mine).unwrap().is_none() && receive(&mut its).unwrap().is_none());
}

/// A host with many devices has a long address, and a hello that says it is no shorter.
#[test]
fn a_source_whose_address_is_long_is_let_in() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&Address::UcxWorker(None), small()).unwrap();
    let Address::UcxWorker(Some(to)) = address(&*listener) else {
        panic!("{}", listener.address())
    };
    let ucx = Library::load().unwrap();
    let engine = Engine::new(ucx, None, PEER_TIMEOUT, Mode::Messages).unwrap();
    let id = {
        let mut locked = engine.lock();
        let own = locked.address().unwrap();
        // UCX knows where its address ends.
        let mut bytes = own.as_bytes().to_vec();
        bytes.resize(4000, 0);
        let endpoint = locked.connect_to_worker(&to).unwrap();
        let id = locked.state.insert(endpoint, Stage::Calling);
        let hello = Hello {
            hello: ConnectConfig::default().hello,
            name: locked.state.connections[&id].name,
            nonce: Nonce::NONE,
            address: WorkerAddress::new(own.am_id(), &bytes),
        };
        locked.notify_peer(id, Notice::Hello, 0, &hello.encode(Mode::Messages));
        id
    };
    let mut link = None;
    wait_for("the welcome", || {
        let accepted = listener.accept();
        link = link.take().or(accepted);
        let mut locked = engine.lock();
        locked.progress();
        matches!(locked.state.connections[&id].stage, Stage::Open { .. }).then_some(())
    });
    assert!(link.is_some());
}

/// An address that was kept in a file, and whose target has ended since.
#[test]
fn a_worker_that_is_gone_is_reported_in_time() {
    if !has_ucx() {
        return;
    }
    let listener = listen(&Address::UcxWorker(None), small()).unwrap();
    let to = address(&*listener);
    drop(listener);
    let began = Instant::now();
    let error = connect(&to, began + Duration::from_secs(10))
        .map(drop)
        .unwrap_err();
    // Over TCP alone UCX says no more than that it is unreachable.
    let may_have_ended = error.to_string().contains("may have ended");
    assert!(
        matches!(error, ConnectError::NobodyListens { .. }) || may_have_ended,
        "{error}"
    );
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}: {error}");
}

#[test]
fn whoever_leaves_in_the_middle_of_a_handshake_is_forgotten() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Messages), small()).unwrap();
    let to = address(&*listener);
    let peer = Peer::new(&to);
    // One that says nothing; UCX itself connects when both sides work.
    for _ in 0..100 {
        assert!(listener.accept().is_none());
        peer.is_gone();
    }
    drop(peer);
    let source = std::thread::spawn(move || connect(&to, soon()).map(drop));
    let target = accept(&mut *listener);
    wait_for("the source", || {
        listener.accept();
        target.waiter.is_peer_closed().then_some(())
    });
    source.join().unwrap().unwrap();
}

/// Credits are what a peer claims: a peer that gives them for frames that it never fetches gets a bounded number at a time.
#[test]
fn peers_that_credit_what_they_never_read_take_no_memory() {
    const SLOTS: u32 = 2;
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Messages), ring(SLOTS, 1 << 23)).unwrap();
    let mut peer = Peer::new(&address(&*listener));
    peer.hello();
    let mut link = wait_for("the handshake", || {
        peer.look(|_| ());
        listener.accept()
    });
    // So large that the receiver fetches it.
    let body = vec![7; link.tx().max_body()];
    let mut sent = 0;
    while let Some(n) = send(&mut link, &body).unwrap() {
        sent = n;
        assert!(
            sent <= 2 * SLOTS,
            "{sent} frames wait that the peer does not fetch"
        );
        let credits = Credits {
            frames: n.into(),
            data: units(body.len()) * u64::from(n),
        };
        peer.send(Head::notice(Notice::Credit, 0, 0, credits), b"");
        wait_for("credits", || {
            listener.accept();
            peer.engine.lock().progress_worker();
            (!link.tx().is_unconsumed(n)).then_some(())
        });
    }
    assert_eq!(sent, 2 * SLOTS);
    // When it is ours again, it finds more frames than it gave credits for in its own name, and leaves.
    wait_for("its end", || {
        if peer.look(|locked| locked.state.connections[&peer.id].gone.is_some()) {
            peer.leave();
        }
        listener.accept();
        send(&mut link, &body).err()
    });
}

/// Credits are not sent where the peer takes nothing: they are owed, and paid when it does.
#[test]
fn credits_that_are_owed_are_paid() {
    const SLOTS: u32 = 4;
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Messages), ring(SLOTS, 1 << 23)).unwrap();
    let peer = Peer::new(&address(&*listener));
    peer.hello();
    let mut link = wait_for("the handshake", || {
        peer.look(|_| ());
        listener.accept()
    });
    wait_for("the welcome", || {
        listener.accept();
        let open =
            |locked: &mut Locked<'_>| matches!(locked.state.connections[&peer.id].stage, Stage::Open { .. });
        peer.look(open).then_some(())
    });
    // A frame of the target's, which the peer has taken.
    let theirs = send(&mut link, b"x").unwrap().unwrap();
    wait_for("the target's frame", || {
        listener.accept();
        peer.look(|locked| {
            let mut handler = locked.worker.handler();
            let queue = handler.receive_queues.get_mut(peer.id)?;
            let (frame, _) = queue.take()?;
            let is_due = queue.release(1);
            drop(handler);
            locked.release(frame);
            Some(is_due)
        })
    });
    // So large that the receiver fetches them: they stay under way while the target polls nothing.
    let body = vec![7; link.tx().max_body()];
    for n in 1..=2 {
        if let Stage::Open { out, .. } = &mut peer
            .engine
            .lock()
            .state
            .connections
            .get_mut(&peer.id)
            .unwrap()
            .stage
        {
            assert_eq!(out.send(units(body.len())), n);
        }
        peer.send(frame(n, body.len()), &body);
    }
    let owes = || peer.engine.lock().state.connections[&peer.id].owes_credits;
    {
        let mut locked = peer.engine.lock();
        let connection = locked.state.connections.get_mut(&peer.id).unwrap();
        // As if as much was under way as may be.
        (2..2 * SLOTS).for_each(|_| connection.under_way.begin(message_of(0)));
        locked.credit(peer.id);
    }
    assert!(owes(), "credits were sent where nothing is taken");
    peer.look(|_| ());
    assert!(owes() && link.tx().is_unconsumed(theirs));
    wait_for("the target to fetch", || {
        peer.look(|_| ());
        listener.accept();
        receive(&mut link).unwrap();
        (!owes()).then_some(())
    });
    wait_for("the credit", || {
        peer.look(|_| ());
        listener.accept();
        receive(&mut link).unwrap();
        (!link.tx().is_unconsumed(theirs)).then_some(())
    });
    assert!(!peer.is_gone() && !link.waiter.is_peer_closed());
}

/// A frame that overtook another one is neither delivered nor acknowledged: if the link dies, its sender reports it as lost.
#[test]
fn a_frame_that_overtook_another_stays_unconsumed() {
    if !has_ucx() {
        return;
    }
    // So few slots that credits are due with every frame.
    let mut listener = listen(&any(Mode::Messages), small()).unwrap();
    let peer = Peer::new(&address(&*listener));
    peer.hello();
    let mut link = wait_for("the handshake", || {
        peer.look(|_| ());
        listener.accept()
    });
    let out = |locked: &mut Locked<'_>| match &locked.state.connections[&peer.id].stage {
        Stage::Open { out, .. } => Some(*out),
        _ => None,
    };
    wait_for("the welcome", || {
        listener.accept();
        peer.look(out).map(drop)
    });
    {
        let mut locked = peer.engine.lock();
        let connection = locked.state.connections.get_mut(&peer.id).unwrap();
        let Stage::Open { out, .. } = &mut connection.stage else {
            panic!("it is open");
        };
        assert_eq!([out.send(units(1)), out.send(units(1))], [1, 2]);
    }
    peer.send(frame(2, 1), b"y");
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        listener.accept();
        assert_eq!(receive(&mut link), Ok(None));
    }
    // The frame carries all credits of the target's.
    send(&mut link, b"back").unwrap().unwrap();
    wait_for("the target's frame", || {
        listener.accept();
        let has_one = |locked: &mut Locked<'_>| {
            Some(
                locked
                    .worker
                    .handler()
                    .receive_queues
                    .get_mut(peer.id)?
                    .arrived()
                    .len()
                    == 1,
            )
        };
        peer.look(has_one)?.then_some(())
    });
    let window = peer.look(out).unwrap();
    assert!(window.is_unconsumed(1) && window.is_unconsumed(2));
    peer.send(frame(1, 1), b"x");
    for body in [b"x", b"y"] {
        let (_, received) = wait_for("both frames", || {
            listener.accept();
            receive(&mut link).unwrap()
        });
        assert_eq!(received, body);
    }
    wait_for("credits for both", || {
        listener.accept();
        receive(&mut link).unwrap();
        (!peer.look(out).unwrap().is_unconsumed(2)).then_some(())
    });
}
