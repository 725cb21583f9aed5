//! Two programs that exchange messages, each on its own core. The requests here are the same for all kinds of
//! messages, ours and the peers'; [`roles::exchange`](crate::roles) replies.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// The direction of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// Ping-pong: one message at a time, each answered by a message of the same size. An operation is one
    /// message.
    PingPong,
    /// From the first program to the second, as fast as possible.
    Stream,
}

/// A request to one of the two programs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Connect to the other program; reply with [`Connected`], then serve until [`Stop`](Self::Stop).
    Connect { address: String },
    /// Begin a slot. The leading program replies with [`Done`] at the end, the other one after
    /// [`Request::Stop`].
    Begin {
        pattern: Pattern,
        leads: bool,
        slot: Slot,
    },
    /// Stop.
    Stop,
}

/// Sent once, without a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The address of this program.
    pub(crate) address: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Connected {
    /// The transport to the other program, as the transport itself reports it.
    pub(crate) carried_by: String,
}

/// Number of messages, and the sum of their payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) sum: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Of the leading program.
    pub(crate) sample: Option<Sample>,
    pub(crate) sent: Count,
    pub(crate) received: Count,
}

/// Two connected programs.
pub(crate) struct Pair {
    source: Program,
    target: Program,
    carried_by: String,
}

impl Pair {
    /// Starts a role twice, with additional environment variables.
    pub(crate) fn start(role: &str, cores: Cores, env: &[(&str, &str)]) -> Result<Self> {
        Self::try_start(role, cores, env).with_context(|| format!("starting a pair of `{role}` with {env:?}"))
    }

    fn try_start(role: &str, cores: Cores, env: &[(&str, &str)]) -> Result<Self> {
        let mut source = Program::start(role, cores.source, env)?;
        let mut target = Program::start(role, cores.target, env)?;
        let (first, second): (Hello, Hello) = (source.receive()?, target.receive()?);
        source.send(&Request::Connect {
            address: second.address,
        })?;
        target.send(&Request::Connect {
            address: first.address,
        })?;
        let met: Connected = source.receive_with_peer(&mut target)?;
        let _: Connected = target.receive_with_peer(&mut source)?;
        // Both wait for their first slot.
        source.send(&Request::Stop)?;
        target.send(&Request::Stop)?;
        Ok(Self {
            source,
            target,
            carried_by: met.carried_by,
        })
    }

    /// The transport, as it reports itself.
    pub(crate) fn carried_by(&self) -> &str {
        &self.carried_by
    }

    /// Lets the first program lead and the second follow, and compares what was sent with what was received.
    pub(crate) fn exchange(&mut self, pattern: Pattern, slot: Slot) -> Result<Sample> {
        let begin = |leads| Request::Begin { pattern, leads, slot };
        self.target.send(&begin(false))?;
        self.source.send(&begin(true))?;
        let first: Done = self.source.receive_with_peer(&mut self.target)?;
        self.target.send(&Request::Stop)?;
        let second: Done = self.target.receive_with_peer(&mut self.source)?;
        for (from, to, messages) in [
            (first.sent, second.received, slot.operations),
            (
                second.sent,
                first.received,
                if pattern == Pattern::PingPong {
                    slot.operations
                } else {
                    0
                },
            ),
        ] {
            ensure!(
                from.messages == messages && from == to,
                "{messages} messages of {} bytes expected; sent {from:?}, received {to:?}",
                slot.size
            );
        }
        first.sample.context("the leading program measured nothing")
    }

    /// The pair as a side that alternates with others.
    pub(crate) fn side(&mut self, pattern: Pattern) -> PairSide<'_> {
        PairSide { pair: self, pattern }
    }
}

/// A pair with its pattern.
pub(crate) struct PairSide<'a> {
    pair: &'a mut Pair,
    pattern: Pattern,
}

impl Side for PairSide<'_> {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.pair.exchange(self.pattern, slot)
    }
}
