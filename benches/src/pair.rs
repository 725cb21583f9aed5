//! Two programs that send each other messages, each on a core of its own. What they say here and what
//! [`roles::exchange`](crate::roles) answers is the same for every kind of message, ours and peers'.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// There and back: one at a time, and the answer is a message like it. An operation is one way, half of it.
    PingPong,
    /// From the first program to the second, as many as it takes.
    Stream,
}

/// What the two are told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// To connect to the other one. Answered by [`Met`]; over when told to stop.
    Connect { address: String },
    /// To begin. Answered by [`Done`]: by the one that leads when it is over, by the other one after [`Question::Stop`].
    Begin {
        pattern: Pattern,
        leads: bool,
        slot: Slot,
    },
    /// That it is over.
    Stop,
}

/// Said once, unasked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Where the other one finds this one.
    pub(crate) address: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Connected {
    /// What carries messages to the other one, by the transport's own account.
    pub(crate) carried_by: String,
}

/// Messages, and the sum of their payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) sum: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Of the one that leads.
    pub(crate) sample: Option<Sample>,
    pub(crate) sent: Count,
    pub(crate) received: Count,
}

/// Two programs that are connected.
pub(crate) struct Pair {
    source: Program,
    target: Program,
    carried_by: String,
}

impl Pair {
    /// The same role twice, with what is added to the environment of both.
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
        // They have nothing to do until it is their turn.
        source.send(&Request::Stop)?;
        target.send(&Request::Stop)?;
        Ok(Self {
            source,
            target,
            carried_by: met.carried_by,
        })
    }

    /// What carries messages, by the transport's own account.
    pub(crate) fn carried_by(&self) -> &str {
        &self.carried_by
    }

    /// Lets the first lead and the second follow, and compares what was sent with what was received.
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
                "{messages} messages of {} bytes were to be sent; sent were {from:?}, received {to:?}",
                slot.size
            );
        }
        first.sample.context("the program that leads measured nothing")
    }

    /// As one of those that take turns.
    pub(crate) fn side(&mut self, pattern: Pattern) -> PairSide<'_> {
        PairSide { pair: self, pattern }
    }
}

/// A pair, and what it does in its turn.
pub(crate) struct PairSide<'a> {
    pair: &'a mut Pair,
    pattern: Pattern,
}

impl Side for PairSide<'_> {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.pair.exchange(self.pattern, slot)
    }
}
