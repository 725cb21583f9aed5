//! One side of a connection, as the layers above have it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ifunc_abi::frame::{BODY_ALIGN, Header};

use super::borrowed::Borrowed;
use super::engine::{Engine, Locked};
use super::handshake::Welcome;
use super::header::Head;
use super::inbox::Data;
use super::parcel::Parcel;
use super::table::{Connection, ConnectionId, Frame, Stage};
use crate::transports::bell::sleep_on;
use crate::transports::{Arrived, Body, Gone, Inbound, Link, Outbound, Peer, Waiter};

/// A connection of an engine. The parts of a [`Link`] share it; the connection ends with the last of them.
pub(super) struct Handle {
    pub(super) engine: Arc<Engine>,
    pub(super) id: ConnectionId,
    /// The peer is gone.
    pub(super) flag: Arc<AtomicBool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.leave(self.id);
    }
}

/// The link of a connection that is open.
pub(super) fn new(engine: &Arc<Engine>, id: ConnectionId) -> Option<Link> {
    let locked = engine.lock();
    let connection = locked.state.connections.get(&id)?;
    let Stage::Open { welcome, out, .. } = &connection.stage else {
        return None;
    };
    let Welcome { limits, epoch, .. } = *welcome;
    let max_body = out.max_body();
    let handle = Handle::new(engine, id, &connection.flag);
    drop(locked);
    Some(Link {
        tx: Box::new(Sender {
            handle: Arc::clone(&handle),
            max_body,
            reserved: None,
        })
        .into(),
        rx: Box::new(Receiver {
            handle: Arc::clone(&handle),
            held: None,
        })
        .into(),
        waiter: Arc::new(Sleeper(handle)),
        peer: Peer { uid: None, pid: None },
        limits,
        epoch,
        key: id.key(),
    })
}

/// What becomes of whoever looks for a connection that is not there any more.
const CLOSED: Gone = Gone::Closed;

impl Handle {
    pub(super) fn new(engine: &Arc<Engine>, id: ConnectionId, flag: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            id,
            flag: Arc::clone(flag),
        })
    }

    fn is_gone(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

pub(super) fn connection<'a>(
    locked: &'a mut Locked<'_>,
    id: ConnectionId,
) -> Result<&'a mut Connection, Gone> {
    locked.state.connections.get_mut(&id).ok_or(CLOSED)
}

/// Frames out.
struct Sender {
    handle: Arc<Handle>,
    max_body: usize,
    /// What `reserve` handed out, with its length.
    reserved: Option<(Box<Parcel>, usize)>,
}

impl Sender {
    /// A smaller body than this part of the room that was reserved for it moves to a parcel of its size: credits bound what
    /// is sent, not what was reserved.
    const SPARSE: usize = 4;
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, Gone> {
        assert!(
            len <= self.max_body && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        let mut locked = self.handle.engine.lock();
        let connection = connection(&mut locked, self.handle.id)?;
        if let Some(gone) = &connection.gone {
            return Err(gone.clone());
        }
        match &connection.stage {
            Stage::Open { out, .. } if !out.has_room(len, connection.under_way) => return Ok(None),
            Stage::Open { .. } => {}
            _ => return Err(CLOSED),
        }
        let parcel = match self.reserved.take() {
            Some((parcel, _)) if parcel.room() >= len => parcel,
            other => {
                let inbox = locked.inbox();
                if let Some((small, _)) = other {
                    inbox.give(small);
                }
                inbox.parcel(len)
            }
        };
        let (parcel, _) = self.reserved.insert((parcel, len));
        Ok(Some(parcel.body_mut(len)))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let (mut parcel, reserved) = self.reserved.take().expect("`reserve` comes before `commit`");
        assert!(len <= reserved, "a body larger than what was reserved");
        let mut locked = self.handle.engine.lock();
        if len.saturating_mul(Self::SPARSE) < parcel.room() {
            let mut small = locked.inbox().parcel(len);
            if small.room() < parcel.room() {
                small.body_mut(len).copy_from_slice(parcel.body(len));
                self.reserved = Some((std::mem::replace(&mut parcel, small), 0));
            } else {
                locked.inbox().give(small);
            }
        }
        let Ok(connection) = connection(&mut locked, self.handle.id) else {
            return 0;
        };
        let Stage::Open { out, incoming, .. } = &mut connection.stage else {
            return 0;
        };
        failpoint!("transport.commit");
        let sequence = out.send(len);
        let head = Head {
            sequence,
            len: len as u32,
            words: header.words(),
            credits: incoming.publish(),
            to: connection.peer,
        };
        locked.post(self.handle.id, parcel, head, len);
        sequence
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        let locked = self.handle.engine.lock();
        match locked
            .state
            .connections
            .get(&self.handle.id)
            .map(|connection| &connection.stage)
        {
            Some(Stage::Open { out, .. }) => out.is_unconsumed(sequence),
            _ => true,
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some((parcel, _)) = self.reserved.take()
            && let Some(locked) = self.handle.engine.lock_here()
        {
            locked.inbox().give(parcel);
        }
    }
}

/// Frames in.
struct Receiver {
    handle: Arc<Handle>,
    /// The frame that `peek` found.
    held: Option<Frame>,
}

// SAFETY: what a frame holds is memory of the engine's, which is given back under its lock; until then it is the
// receiver's alone.
unsafe impl Send for Receiver {}

impl Receiver {
    /// The next frame, if there is one. Lets UCX work if nobody did since the last look.
    fn next(&self) -> Result<Option<Frame>, Gone> {
        let mut locked = self.handle.engine.lock();
        let looks = locked.state.looks;
        let looked = connection(&mut locked, self.handle.id)?;
        if let Some(frame) = looked.arrived.pop_front() {
            return Ok(Some(frame));
        }
        if looked.looked == looks && looked.gone.is_none() {
            locked.progress();
        }
        let looks = locked.state.looks;
        let connection = connection(&mut locked, self.handle.id)?;
        connection.looked = looks;
        match (connection.arrived.pop_front(), &connection.gone) {
            (None, Some(gone)) => Err(gone.clone()),
            (frame, _) => Ok(frame),
        }
    }
}

impl Inbound for Receiver {
    fn peek(&mut self) -> Result<Option<Arrived<'_>>, Gone> {
        if self.held.is_none() {
            self.held = self.next()?;
        }
        Ok(self.held.as_ref().map(|frame| {
            let (ptr, len) = match &frame.data {
                Data::Copied(parcel, len) => (parcel.body(*len).as_ptr(), *len),
                Data::Kept(data, len) => (data.cast_const().cast(), *len),
                Data::Fetchable(..) => unreachable!("what has arrived was fetched"),
            };
            Arrived {
                sequence: frame.sequence,
                words: frame.words,
                // SAFETY: the memory is the frame's until `release`, which needs `self` mutably.
                body: unsafe { Body::new(ptr, len) },
            }
        }))
    }

    fn release(&mut self) {
        let Some(frame) = self.held.take() else { return };
        let len = frame.data.len();
        let mut locked = self.handle.engine.lock();
        locked.discard(frame.data);
        if let Ok(connection) = connection(&mut locked, self.handle.id)
            && let Stage::Open { incoming, .. } = &mut connection.stage
            && incoming.release(len)
            && connection.gone.is_none()
        {
            locked.credit(self.handle.id);
        }
    }

    fn settle(&mut self) {
        // What the peer was not told of yet keeps it from nothing: see `Incoming::release`.
    }

    fn arm(&mut self) -> bool {
        let mut locked = self.handle.engine.lock();
        // A target's listener has armed the worker for all of its connections.
        if locked.state.door.is_none() {
            locked.arm();
        }
        self.held.is_none()
            && connection(&mut locked, self.handle.id)
                .is_ok_and(|connection| connection.arrived.is_empty() && connection.gone.is_none())
    }

    fn disarm(&mut self) {
        if let Ok(connection) = connection(&mut self.handle.engine.lock(), self.handle.id) {
            connection.resting = false;
        }
    }

    fn rest(&mut self) {
        if let Ok(connection) = connection(&mut self.handle.engine.lock(), self.handle.id) {
            connection.resting = true;
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.held.is_none()
            && connection(&mut self.handle.engine.lock(), self.handle.id)
                .is_ok_and(|connection| connection.arrived.is_empty() && connection.gone.is_none())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Where the worker cannot be used it is the application's, and what it brought was copied.
        if let Some(frame) = self.held.take()
            && let Some(mut locked) = self.handle.engine.lock_here()
        {
            locked.discard(frame.data);
        }
    }
}

/// Sleeping.
pub(super) struct Sleeper(Arc<Handle>);

impl Sleeper {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    /// How often UCX is let work to find out about a peer's end: it says so in several steps.
    const STEPS: usize = 4;
    /// The longest sleep: UCX notices some things, a peer's end among them, only when it is let work.
    const SLICE: Duration = Duration::from_millis(5);

    /// As long, or as many milliseconds as `IFUNC_TEST_UCX_SLICE` says: who sleeps longer than a test waits does not hide
    /// from it that nobody was woken.
    fn slice() -> Duration {
        static SLICE: OnceLock<Duration> = OnceLock::new();
        *SLICE.get_or_init(|| {
            let longer = std::env::var("IFUNC_TEST_UCX_SLICE").ok();
            longer
                .and_then(|milliseconds| milliseconds.parse().ok())
                .map_or(Self::SLICE, Duration::from_millis)
        })
    }
}

impl Waiter for Sleeper {
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        let engine = &self.0.engine;
        let nap = engine.lock_here().map_or(Duration::ZERO, |locked| locked.nap());
        if nap.is_zero() {
            return self.sleep_on_bell(until, woken);
        }
        // The bell rings, for those who have nothing but the descriptor.
        let until = until.min(Instant::now() + nap);
        match woken {
            Some(woken) => drop(sleep_on(woken, until)),
            None => std::thread::sleep(until.saturating_duration_since(Instant::now())),
        }
    }

    fn attention(&self) -> Option<Duration> {
        Some(Self::slice())
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.0.engine.bell()
    }

    fn silence(&self) {
        // Arming does: UCX owns what is behind the descriptor.
    }

    fn serves_any_thread(&self) -> bool {
        self.0.engine.borrowed().is_none_or(Borrowed::is_anywhere)
    }

    fn carried_by(&self) -> String {
        self.0.engine.lock().carried_by(self.0.id)
    }

    fn close(&self) {
        // Who sleeps looks again after a slice.
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn ask_gone(&self) -> bool {
        for _ in 0..Self::STEPS {
            if self.0.is_gone() || !self.0.engine.lock().progress() {
                break;
            }
        }
        self.0.is_gone()
    }
}
