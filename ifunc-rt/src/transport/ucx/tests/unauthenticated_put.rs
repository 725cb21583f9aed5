//! Peers that have a target's ring and write anything into it.

use ifunc_abi::frame::commit_word as first_word;

use super::peer::{Peer, frame};
use super::unauthenticated::disconnects_by;
use super::*;
use crate::transport::ConnectError;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::handshake::LONGEST;
use crate::transport::ucx::header::{Head, Notice, pack};
use crate::transport::ucx::put::layout::{CREDITS, HEADER_AT, InSlot, Layout, trailer};
use crate::transport::ucx::table::ConnectionId;
use crate::transport::window::Credits;

fn disconnects(what: &str, greets: bool, say: impl FnOnce(&Peer)) {
    disconnects_by(Mode::Puts, what, greets, say);
}

impl Peer {
    /// Puts the header of a first frame of this length.
    fn put_header(&self, len: usize) {
        self.look(|_| ());
        put_header(
            &mut self.engine.lock(),
            self.id,
            Layout::new(small().to_target),
            1,
            len,
        );
    }
}

/// Puts a header that says so where that of the peer's first frame is, with its checksum, and without a doorbell.
pub(super) fn put_header(
    locked: &mut Locked<'_>,
    id: ConnectionId,
    layout: Layout,
    sequence: u32,
    len: usize,
) {
    let connection = locked.state.connections.get_mut(&id).unwrap();
    let nonce = connection.rings().unwrap().nonce;
    let words = [
        first_word(sequence, len as u32),
        Header::new(Kind::Exec, 7, 9).words()[0],
        9,
    ];
    let body = InSlot::of(len, |_| 0);
    let trailer = trailer(nonce, words, body).map(u64::to_le_bytes).concat();
    let slot = layout.slot(1);
    locked.put_anything(id, &[0; HEADER_AT], slot);
    locked.put_anything(id, &trailer, slot + HEADER_AT);
}

#[test]
fn peers_that_break_the_protocol_are_disconnected() {
    if !has_ucx() {
        return;
    }
    disconnects("a frame over the socket", true, |peer| {
        peer.notice_of(&frame(1, 3), b"abc")
    });
    disconnects("a hello that is too long", false, |peer| {
        peer.notice(Notice::Hello, 0, &[0; LONGEST + 1]);
    });
    disconnects("no hello at all", false, |peer| {
        peer.notice(Notice::Hello, 0, b"GET / HTTP/1.1")
    });
    disconnects("a hello with another nonce", false, |peer| {
        let mut hello = peer.greeting();
        *hello.last_mut().unwrap() ^= 1;
        peer.notice(Notice::Hello, 0, &hello);
    });
    disconnects("an unknown notice", true, |peer| {
        let mut head = Head::notice(Notice::Credit, 0, 0, Credits::default());
        head.words[0] = 0xabcd << 8;
        peer.notice_of(&head, b"");
    });
    disconnects("credits, which are put", true, |peer| {
        peer.notice(Notice::Credit, 0, b"")
    });
    disconnects("a doorbell for nothing", true, |peer| {
        peer.notice(Notice::Doorbell, 77, b"");
    });
    disconnects("a second ring", true, |peer| {
        peer.notice(Notice::Memory, 0, &[1; 100]);
    });
    // A ring that is none, right behind a hello, is not tried here: the peer would take the key of memory that the target has
    // given back by then, which ends its process in UCX 1.13.
    disconnects("a ring before a hello", false, |peer| {
        peer.notice(Notice::Memory, 0, &[0; 40]);
    });
    for len in [(1 << 15) + 1, u32::MAX as usize] {
        disconnects("a larger body than a frame has", true, |peer| {
            peer.put_header(len);
        });
    }
    disconnects("a second end", true, |peer| {
        // More than have come: the first is waited for.
        (0..2).for_each(|_| peer.notice(Notice::Fin, 5, b""));
    });
    disconnects("an acknowledgement of no end", true, |peer| {
        peer.notice(Notice::FinAck, 0, b"");
    });
    disconnects("fewer frames than have come", true, |peer| {
        peer.put_header(0);
        peer.notice(Notice::Fin, 0, b"");
    });
}

#[test]
fn peers_that_credit_what_was_never_sent_are_disconnected() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Puts), small()).unwrap();
    let peer = Peer::new(&address(&*listener));
    peer.hello();
    let mut link = wait_for("the handshake", || {
        peer.look(|_| ());
        listener.accept()
    });
    let credits = Credits { frames: 100, data: 7 };
    let word = pack(credits).to_le_bytes();
    peer.engine.lock().put_anything(peer.id, &word, CREDITS);
    // The sender polls for credits only when those that it knows are used up.
    let gone = wait_for("the end", || {
        peer.look(|_| ());
        listener.accept();
        send(&mut link, b"x").err()
    });
    assert!(matches!(gone, LinkError::Malformed(_)), "{gone}");
    assert!(link.waiter.is_peer_closed());
    wait_for("the peer to hear of it", || {
        listener.accept();
        peer.is_gone().then_some(())
    });
}

/// A peer that announces a sleep whenever it is looked at, and takes none of the doorbells, is left; the target is told that it was.
#[test]
fn peers_that_take_no_doorbells_are_left() {
    if !has_ucx() {
        return;
    }
    let mut listener = listen(&any(Mode::Puts), small()).unwrap();
    let mut source = Peer::new(&address(&*listener));
    source.hello();
    let mut link = wait_for("the handshake", || {
        source.look(|_| ());
        listener.accept()
    });
    assert!(!link.waiter.is_peer_closed());
    // The engine of the source answers a target that never takes its doorbells: it has the lock meanwhile.
    let mut locked = source.engine.lock();
    let view = {
        let connection = locked.state.connections.get_mut(&source.id).unwrap();
        connection.rings().unwrap().view.clone()
    };
    // The target takes only the first, of a sleep that it never announced, and closes the connection.
    let sent = (1..=1_000_000).take_while(|&number| {
        view.pretend_announced(number);
        locked.answer(source.id);
        locked.state.connections[&source.id].gone.is_none()
    });
    assert!(sent.count() < 1_000_000, "all of them were sent");
    drop(locked);
    source.leave();
    let gone = wait_for("the target to receive a doorbell for nothing", || {
        listener.accept();
        link.rx().peek().map(drop).err()
    });
    assert!(matches!(gone, LinkError::Malformed(_)), "{gone}");
}

#[test]
fn a_source_of_the_other_mode_gets_the_reason() {
    if !has_ucx() {
        return;
    }
    for (ours, theirs, scheme) in [
        (Mode::Messages, Mode::Puts, "`ucx://`"),
        (Mode::Puts, Mode::Messages, "`ucx-put://`"),
    ] {
        let mut listener = listen(&any(ours), small()).unwrap();
        let at = host_port(&address(&*listener)).clone();
        let to = match theirs {
            Mode::Messages => Address::Ucx(at),
            Mode::Puts => Address::UcxPut(at),
        };
        let source = std::thread::spawn(move || connect(&to, soon()).unwrap_err());
        wait_for("the refusal", || {
            assert!(listener.accept().is_none());
            source.is_finished().then_some(())
        });
        let error = source.join().unwrap();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        let said = format!("reached by {scheme}");
        assert!(error.to_string().contains(&said), "{error}");
    }
}
