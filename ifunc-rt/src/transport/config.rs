//! What a target chooses when it listens, and a source when it connects.

use std::time::Duration;

use ifunc_abi::hello::Hello;

use crate::keys::TlsKeys;
use crate::policy::SharedConnect;

/// Size of the ring that carries one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSize {
    /// Frames that may be on their way: the credits of the sender. A power of two, at least 2.
    pub(crate) slots: u32,
    /// Bytes for the bodies that are not inline; a body may have half of them. A power of two, at least
    /// [`MIN_DATA`](Self::MIN_DATA).
    pub(crate) data: u32,
}

impl RingSize {
    /// Most slots: a packed message of UCX's has the low 16 bits of a frame's sequence, and frames of one window must differ in them.
    pub(crate) const MAX_SLOTS: u32 = 1 << 16;
    /// Fewest bytes of a data ring: mapped twice, it must be a multiple of the page size of every supported
    /// machine.
    pub(crate) const MIN_DATA: u32 = 1 << 16;
    /// Most bytes of a data ring.
    pub(crate) const MAX_DATA: u32 = 1 << 30;

    /// Whether a ring of this size can be.
    pub(crate) const fn is_valid(self) -> bool {
        self.slots.is_power_of_two()
            && self.slots >= 2
            && self.slots <= Self::MAX_SLOTS
            && self.data.is_power_of_two()
            && self.data >= Self::MIN_DATA
            && self.data <= Self::MAX_DATA
    }

    /// That of the ring of a connection beside `others`. The slots of all rings together are to stay in the caches of a processor: with 1000
    /// sources that have their turns, a message took 67 to 89 ns with 4096 slots for each, and 42 to 53 ns with 256. One of a few sources
    /// gains from many slots: see [`ListenConfig::with_hello`].
    pub(crate) fn beside(self, others: u32) -> Self {
        let share = match others {
            ..64 => 1,
            64..256 => 4,
            256.. => 16,
        };
        Self {
            slots: (self.slots / share).max(2),
            ..self
        }
    }

    /// Bytes that it takes.
    pub(crate) const fn bytes(self) -> usize {
        self.slots as usize * ifunc_abi::frame::SLOT + self.data as usize
    }

    /// Largest body of one frame: half the data ring, so that one can be written while the one before is
    /// read.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    pub(crate) const fn max_body(self) -> usize {
        self.data as usize / 2
    }
}

/// Most connections at a time, unless the target's builder says otherwise.
const MAX_CONNECTIONS: usize = 1024;

/// What a target chooses when it listens.
#[derive(Clone, Debug)]
pub(crate) struct ListenConfig {
    /// What the target states about itself.
    pub(crate) hello: Hello,
    /// Which peers connect. The others are refused, with the reason.
    pub(crate) connect: SharedConnect,
    /// Most connections at a time.
    pub(crate) max_connections: usize,
    /// Requests.
    pub(crate) to_target: RingSize,
    /// Completions and reports.
    pub(crate) to_source: RingSize,
    /// Many connections have smaller rings, where each takes memory of its own.
    pub(crate) shares_slots: bool,
    /// Time after which a peer that vanished is given up.
    pub(crate) peer_timeout: Duration,
    /// `loopback` delivers out of order, as the seed says.
    #[cfg(test)]
    pub(crate) shuffle: Option<u64>,
}

impl ListenConfig {
    /// The defaults.
    ///
    /// A slot ring must exceed the peer's first-level cache and stay in the second: 4096 slots are 256 KiB
    /// (4.5 ns per message where 64 KiB cost 15; over `ucx-put` they are twice as large). As every request may want an answer, both directions have
    /// as many. Bodies of requests are the larger ones (images, payloads), so their data ring is twice the
    /// answers'. Memory is populated when it is written, or shortly before.
    pub(crate) fn with_hello(hello: Hello) -> Self {
        Self {
            hello,
            connect: SharedConnect::default(),
            max_connections: MAX_CONNECTIONS,
            to_target: RingSize {
                slots: 4096,
                data: 2 << 20,
            },
            to_source: RingSize {
                slots: 4096,
                data: 1 << 20,
            },
            shares_slots: true,
            peer_timeout: PEER_TIMEOUT,
            #[cfg(test)]
            shuffle: None,
        }
    }

    /// The defaults for tests.
    #[cfg(test)]
    pub(crate) fn new(limits: ifunc_abi::frame::Limits) -> Self {
        Self::with_hello(crate::hello::serving(limits))
    }
}

/// Default time after which a peer that vanished is given up.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest ring that a source takes, unless its options say otherwise.
pub(crate) const MAX_RING: usize = 64 << 20;

/// What a source chooses when it connects.
#[derive(Clone, Debug)]
pub(crate) struct ConnectConfig {
    /// Time after which a target that vanished is given up.
    #[cfg(any(feature = "ucx", feature = "tls"))]
    pub(crate) peer_timeout: Duration,
    /// Whether targets of other users are connected to.
    pub(crate) other_users: bool,
    /// The most bytes that a ring may take.
    pub(crate) max_ring: usize,
    /// The keys of this process. `None`: those of the environment.
    pub(crate) tls: Option<TlsKeys>,
    /// What the source states about itself.
    pub(crate) hello: Hello,
}

#[cfg(test)]
impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            #[cfg(any(feature = "ucx", feature = "tls"))]
            peer_timeout: PEER_TIMEOUT,
            other_users: false,
            max_ring: MAX_RING,
            tls: None,
            hello: crate::hello::invoking(usize::MAX),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_rings_of_many_connections_are_small_and_valid() {
        let slots = |slots: u32, others| {
            let data = RingSize::MIN_DATA;
            let size = RingSize { slots, data }.beside(others);
            assert!(size.is_valid() && size.data == data);
            size.slots
        };
        let places = [0, 63, 64, 255, 256, 1023, u32::MAX];
        assert_eq!(
            places.map(|others| slots(4096, others)),
            [4096, 4096, 1024, 1024, 256, 256, 256]
        );
        assert_eq!(places.map(|others| slots(8, others)), [8, 8, 2, 2, 2, 2, 2]);
    }
}
