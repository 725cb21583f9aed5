//! Ifuncs: the operations travel to the server, which knows none of them.

use anyhow::Result;
use ifunc_bench_ifuncs::kv::{Found, Record, kv_add, kv_get, kv_put, kv_scan};
use ifunc_rt::{Call, Handle, Policy, Source, Target};

use super::operation::{Answer, Operation};
use super::pages::Map;
use super::{Connections, address, clients, work};
use crate::kv::Listening;
use crate::program::Starter;
use crate::roles::exchange::Timeout;

/// Serves at `BENCH_ADDRESS`.
pub(in crate::roles) fn server(mut starter: Starter) -> Result<()> {
    // SAFETY: only this benchmark connects, as the same user.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&address()?)?;
    starter.reply(&Listening {
        address: target.address().to_string(),
        process: std::process::id(),
    })?;
    starter.wait_for_end()?;
    Ok(target.serve(&mut Map::new())?)
}

/// A client.
struct Ifuncs {
    get: Handle<kv_get>,
    put: Handle<kv_put>,
    scan: Handle<kv_scan>,
    add: Handle<kv_add>,
    call: Option<Pending>,
    _source: Source,
}

/// An operation under way.
enum Pending {
    Get(Call<Option<Record>>),
    Put(Call<()>),
    Scan(Call<Found>),
    Add(Call<Option<u64>>),
}

impl Pending {
    #[inline]
    fn answer(&mut self) -> Result<Option<Answer>> {
        Ok(match self {
            Self::Get(call) => call.try_wait().transpose()?.map(Answer::Record),
            Self::Put(call) => call.try_wait().transpose()?.map(|()| Answer::Stored),
            Self::Scan(call) => call.try_wait().transpose()?.map(Answer::Found),
            Self::Add(call) => call.try_wait().transpose()?.map(Answer::Amount),
        })
    }

    /// Waits as a client does that has nothing else to do.
    fn wait(self) -> Result<Answer> {
        Ok(match self {
            Self::Get(call) => Answer::Record(call.wait()?),
            Self::Put(call) => call.wait().map(|()| Answer::Stored)?,
            Self::Scan(call) => Answer::Found(call.wait()?),
            Self::Add(call) => Answer::Amount(call.wait()?),
        })
    }
}

impl Ifuncs {
    fn connect(address: &str) -> Result<(Self, String)> {
        let source = Source::connect(address)?;
        let carried_by = source.transport().to_string();
        let client = Self {
            get: source.register()?,
            put: source.register()?,
            scan: source.register()?,
            add: source.register()?,
            call: None,
            _source: source,
        };
        Ok((client, carried_by))
    }
}

struct Clients(Vec<Ifuncs>);

impl Connections for Clients {
    #[inline]
    fn start(&mut self, client: usize, operation: &Operation) -> Result<()> {
        let client = &mut self.0[client];
        client.call = Some(match operation {
            Operation::Get(key) => Pending::Get(client.get.call(key)?),
            Operation::Put(put) => Pending::Put(client.put.call(put)?),
            Operation::Scan(scan) => Pending::Scan(client.scan.call(scan)?),
            Operation::Add(add) => Pending::Add(client.add.call(add)?),
        });
        Ok(())
    }

    fn answers(&mut self, into: &mut Vec<(usize, Answer)>) -> Result<()> {
        if let [alone] = self.0.as_mut_slice()
            && let Some(call) = alone.call.take()
        {
            into.push((0, call.wait()?));
            return Ok(());
        }
        let mut timeout = Timeout::new();
        while into.is_empty() {
            for (number, client) in self.0.iter_mut().enumerate() {
                if let Some(call) = &mut client.call
                    && let Some(answer) = call.answer()?
                {
                    client.call = None;
                    into.push((number, answer));
                }
            }
            timeout.check()?;
        }
        Ok(())
    }
}

/// Connects to `BENCH_ADDRESS`.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let address = address()?;
    let mut carried_by = String::new();
    let mut connected = Vec::new();
    for _ in 0..clients()? {
        let (client, by) = Ifuncs::connect(&address)?;
        carried_by = by;
        connected.push(client);
    }
    starter.reply(&carried_by)?;
    work(starter, Clients(connected))
}
