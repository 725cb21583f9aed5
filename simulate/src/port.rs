//! A connection as a driver holds it.

use std::cell::Cell;
use std::rc::Rc;

use ifunc_abi::frame::{Kind, Limits};
use ifunc_proto::{Config, Connection, ServerConfig};

use crate::host::Taken;
use crate::image::{Installed, SentImage};
use crate::link::Commit;
use crate::rng::Rng;

/// What a node does, on all its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) invokes: bool,
    /// Length of the longest answer that it takes.
    pub(crate) takes_answers: usize,
    /// Its host takes invocations and answers them later.
    pub(crate) takes: bool,
}

impl Node {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let server = ServerConfig {
            limits: Limits {
                max_payload: rng.pick(&[0, 10, 64, 150, 300, 2000]),
                max_image: rng.pick(&[100, 700, 3000, 3000]),
                max_answer: rng.pick(&[0, 8, 64, 500, 4000]),
            },
            max_handles: rng.pick(&[1, 3, 100, 100]),
            has_private_answers: rng.one_in(2),
        };
        let role = rng.below(4);
        Self {
            config: Config {
                batch_size: rng.pick(&[32, 64, 200, 1000]),
                max_answers: usize::MAX,
                server: (role != 0).then_some(server),
            },
            invokes: role != 1,
            takes_answers: rng.pick(&[300, 4000, 1 << 20]),
            takes: rng.one_in(3),
        }
    }
}

/// A request whose completion the driver awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Invocation(u32),
    /// A flush over this link, in this frame.
    Flush(usize, u32),
    /// A page of statistics.
    Stats(u32),
}

/// A call that the driver did not drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) token: u64,
    pub(crate) awaited: Awaited,
    /// The driver's number of it, kept with the call; it was returned when the call ended.
    pub(crate) user: Option<u32>,
    pub(crate) is_woken: bool,
}

/// An invocation to be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) handle: u32,
    pub(crate) image: SentImage,
    pub(crate) len: usize,
    pub(crate) bound: usize,
    pub(crate) align: usize,
    pub(crate) wants_completion: bool,
    pub(crate) carries_code: bool,
    /// `Some`: it is added to the open batch. `Some(true)`: which is sent at once.
    pub(crate) batch: Option<bool>,
    pub(crate) does_encode: bool,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) node: usize,
    pub(crate) connection: Connection<SentImage, u32, Installed>,
    /// The link, also after it died, and the side of it.
    pub(crate) link: Option<(usize, usize)>,
    /// The connection had a link that worked when the simulator last looked.
    pub(crate) was_linked: bool,
    pub(crate) serves: bool,
    /// The peer serves, and this node invokes.
    pub(crate) is_served: bool,
    /// Its place was taken by a new port: it ends with its link.
    pub(crate) is_replaced: bool,
    /// The driver's handles.
    pub(crate) handles: Vec<(u32, SentImage)>,
    /// When each was bound. Of a handle that was bound twice the later binding ends first.
    pub(crate) bound: Vec<(u32, u64)>,
    /// The images that were sent over the link: their first handles, which images, and when.
    pub(crate) installs: Vec<(u32, u8, u64)>,
    pub(crate) calls: Vec<Call>,
    /// A submission that waits.
    pub(crate) waiting: Option<Wish>,
    pub(crate) installed: Rc<Cell<usize>>,
    /// An invocation that was taken, and is answered before the next poll.
    pub(crate) taken: Option<Taken>,
    pub(crate) users: u32,
}

impl Port {
    pub(crate) fn new(node: usize, config: Config) -> Self {
        Self {
            node,
            connection: Connection::new(config),
            link: None,
            was_linked: false,
            serves: false,
            is_served: false,
            is_replaced: false,
            handles: Vec::new(),
            bound: Vec::new(),
            installs: Vec::new(),
            calls: Vec::new(),
            waiting: None,
            installed: Rc::default(),
            taken: None,
            users: 0,
        }
    }

    /// A frame installs an image, or releases one. `false`: the driver has held one of its handles ever since it was sent.
    pub(crate) fn sends_image(&mut self, commit: &Commit, step: u64) -> bool {
        let (kind, first) = (commit.kind, commit.handle);
        let installed = self.installs.iter().position(|&(other, ..)| other == first);
        let installed = installed.map(|index| self.installs.swap_remove(index));
        if kind == Kind::Install
            && let Some(image) = commit.id.and_then(SentImage::index_of)
        {
            self.installs.push((first, image, step));
        }
        let (Kind::Unbind, Some((first, image, since))) = (kind, installed) else {
            return true;
        };
        let is_held = |&(handle, at): &(u32, u64)| {
            let image = |(other, sent): &(u32, SentImage)| {
                *other == handle && sent.image.index == image && first + u32::from(sent.entry) == handle
            };
            at <= since && self.handles.iter().any(image)
        };
        !self.bound.iter().any(is_held)
    }

    pub(crate) fn is_duplex(&self) -> bool {
        self.serves && self.is_served
    }
}
