//! One of the sources that call meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use example_07_live_upgrade_ifuncs::{Record, get, put};
use example_servers::Failure;
use ifunc_rt::Source;

/// Keys of a source.
const KEYS: u64 = 500;

/// What a source has done in a third of its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phase {
    puts: u64,
    /// Compressed bytes.
    stored: u64,
    gets: u64,
    getting: Duration,
}

impl Phase {
    /// This and another one together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            puts: self.puts + other.puts,
            stored: self.stored + other.stored,
            gets: self.gets + other.gets,
            getting: self.getting + other.getting,
        }
    }

    /// Compressed bytes of a value.
    #[must_use]
    pub fn stored_per_put(self) -> f64 {
        self.stored as f64 / self.puts.max(1) as f64
    }

    /// Time of a get.
    #[must_use]
    pub fn micros_per_get(self) -> f64 {
        self.getting.as_secs_f64() * 1e6 / self.gets.max(1) as f64
    }
}

/// What a source has done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Its thirds.
    pub phases: [Phase; 3],
    /// Number of calls, with those that read all values at the end.
    pub calls: u64,
    /// How often each key was stored.
    pub last: BTreeMap<u64, u64>,
    number: u64,
}

impl Tally {
    /// Bytes of all values that were stored last.
    #[must_use]
    pub fn last_bytes(&self) -> usize {
        self.last
            .iter()
            .map(|(&key, &times)| value(self.number, key, times).len())
            .sum()
    }
}

/// Stores and reads values of keys of its own.
///
/// # Errors
/// A call fails, or a value is not the one that was stored last.
pub fn run(addr: &str, number: u64, calls: u64) -> Result<Tally, Failure> {
    let source = Source::connect(addr)?;
    let (put, get) = (source.register::<put>()?, source.register::<get>()?);
    let mut tally = Tally {
        number,
        ..Tally::default()
    };
    let read = |tally: &mut Tally, key: u64| -> Result<(), Failure> {
        let times = tally.last.get(&key).copied().unwrap_or_default();
        let found = get.call(&name(number, key))?.wait_bytes()?;
        tally.calls += 1;
        let expected = if times > 0 {
            value(number, key, times)
        } else {
            Vec::new()
        };
        if found != expected {
            return Err(format!(
                "`{}` is not what was stored last, for the {times}. time",
                name(number, key)
            )
            .into());
        }
        Ok(())
    };
    for call in 0..calls {
        let phase = (call * 3 / calls) as usize;
        let random = hash(number << 32 | call);
        let key = random % KEYS;
        if random >> 63 == 0 {
            let times = tally.last.entry(key).or_default();
            *times += 1;
            let record = Record {
                key: &name(number, key),
                value: &value(number, key, *times),
            };
            tally.phases[phase].stored += put.call(&record)?.wait()?;
            tally.phases[phase].puts += 1;
            tally.calls += 1;
        } else {
            let began = Instant::now();
            read(&mut tally, key)?;
            tally.phases[phase].getting += began.elapsed();
            tally.phases[phase].gets += 1;
        }
    }
    // What was stored in any version is there in the end.
    for key in 0..KEYS {
        read(&mut tally, key)?;
    }
    Ok(tally)
}

fn name(source: u64, key: u64) -> String {
    format!("source-{source}/key-{key}")
}

/// The value of a key, when it is stored for that time.
fn value(source: u64, key: u64, times: u64) -> Vec<u8> {
    let line = format!(
        "{:>24} {:016x} of source {source}\n",
        key,
        hash(key << 32 | times)
    );
    line.repeat(8).into_bytes()
}

/// SplitMix64.
fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
