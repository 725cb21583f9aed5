//! A count per reason.

use alloc::vec::Vec;
use core::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::status::{Failure, Rejection};

/// A reason that a [`Tally`] counts.
pub trait Reason: Copy + Eq {
    /// The reason's code, as in [`status`](crate::status).
    fn code(self) -> u8;
    /// The reason of a code; `None` for a code that this version does not define.
    fn from_code(code: u8) -> Option<Self>;
    /// The reason's name, such as `MissingImport`.
    fn name(self) -> &'static str;
}

macro_rules! reason {
    ($($name:ident)*) => { $(impl Reason for $name {
        fn code(self) -> u8 {
            self as u8
        }
        fn from_code(code: u8) -> Option<Self> {
            $name::from_code(code)
        }
        fn name(self) -> &'static str {
            $name::name(self)
        }
    })* };
}

reason!(Failure Rejection);

/// A count for each reason that occurred.
///
/// Readable formats (JSON) map names to counts. Binary formats map codes to counts; decoding drops codes that
/// this version does not define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<R> {
    counts: Vec<(R, u64)>,
}

impl<R> Default for Tally<R> {
    fn default() -> Self {
        Self { counts: Vec::new() }
    }
}

impl<R: Reason> Tally<R> {
    /// The count of `reason`.
    #[must_use]
    pub fn get(&self, reason: R) -> u64 {
        self.iter()
            .find(|(other, _)| *other == reason)
            .map_or(0, |(_, count)| count)
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter()
            .fold(0, |total, (_, count)| total.saturating_add(count))
    }

    /// Each reason that occurred and its count, in order of the codes.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        self.counts.iter().copied()
    }

    /// Adds `count` to the count of `reason`.
    pub fn add(&mut self, reason: R, count: u64) {
        if count == 0 {
            return;
        }
        let code = reason.code();
        match self.counts.binary_search_by_key(&code, |(other, _)| other.code()) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(count),
            Err(at) => self.counts.insert(at, (reason, count)),
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add(reason, count);
        }
    }
}

impl<R: Reason> Serialize for Tally<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let human_readable = serializer.is_human_readable();
        let mut map = serializer.serialize_map(Some(self.counts.len()))?;
        for (reason, count) in self.iter() {
            if human_readable {
                map.serialize_entry(reason.name(), &count)?;
            } else {
                map.serialize_entry(&reason.code(), &count)?;
            }
        }
        map.end()
    }
}

impl<'de, R: Reason> Deserialize<'de> for Tally<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<R> {
            by_name: bool,
            reason: PhantomData<R>,
        }

        impl<'de, R: Reason> Visitor<'de> for Read<R> {
            type Value = Tally<R>;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a map from reasons to counts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tally<R>, A::Error> {
                let mut tally = Tally::default();
                loop {
                    let reason = if self.by_name {
                        let Some(name) = map.next_key::<alloc::string::String>()? else {
                            break;
                        };
                        (0..=u8::MAX)
                            .filter_map(R::from_code)
                            .find(|reason| reason.name() == name)
                    } else {
                        let Some(code) = map.next_key::<u8>()? else { break };
                        R::from_code(code)
                    };
                    let count = map.next_value()?;
                    if let Some(reason) = reason {
                        tally.add(reason, count);
                    }
                }
                Ok(tally)
            }
        }

        let read = Read {
            by_name: deserializer.is_human_readable(),
            reason: PhantomData,
        };
        deserializer.deserialize_map(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_reasons_are_dropped() {
        // Two entries: nine times an undefined code, and three panics.
        let bytes = [2, 200, 9, Failure::Panic as u8, 3];
        let tally: Tally<Failure> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(tally.get(Failure::Panic), 3);
        assert_eq!(tally.total(), 3);
    }

    #[test]
    fn counts_add_up_and_stay_in_order() {
        let mut tally = Tally::default();
        tally.add(Rejection::Resources, 1);
        tally.add(Rejection::Unbound, u64::MAX);
        tally.add(Rejection::Unbound, 1);
        tally.add(Rejection::Policy, 0);
        let all: Vec<_> = tally.iter().collect();
        assert_eq!(all, [(Rejection::Unbound, u64::MAX), (Rejection::Resources, 1)]);
    }

    #[test]
    fn readable_formats_name_the_reasons() {
        use serde::de::IntoDeserializer as _;
        use serde::de::value::{Error, MapDeserializer, U8Deserializer};
        let names = [("Panic", 3_u64), ("NoReason", 9), ("Deadline", 4)];
        let from = MapDeserializer::<_, Error>::new(names.into_iter());
        let tally = Tally::<Failure>::deserialize(from).unwrap();
        let all: Vec<_> = tally.iter().collect();
        assert_eq!(all.len(), 2);
        assert_eq!((tally.get(Failure::Panic), tally.get(Failure::Deadline)), (3, 4));
        let number: U8Deserializer<Error> = 7_u8.into_deserializer();
        let error = Tally::<Failure>::deserialize(number).unwrap_err();
        assert_eq!(
            alloc::format!("{error}"),
            "invalid type: integer `7`, expected a map from reasons to counts"
        );
    }
}
