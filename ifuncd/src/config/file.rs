//! The tables of the file, as they are written.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConfigFile {
    pub(super) listen: Spanned<ListenTable>,
    pub(super) metrics: Option<MetricsTable>,
    #[serde(default)]
    pub(super) log: LogTable,
    #[serde(default)]
    pub(super) faults: FaultsTable,
    #[serde(default)]
    pub(super) runners: RunnersTable,
    #[serde(default)]
    pub(super) quotas: QuotasTable,
    pub(super) store: Option<StoreTable>,
    pub(super) files: Option<FilesTable>,
    pub(super) memory: Option<MemoryTable>,
    #[serde(default)]
    pub(super) signer: Vec<SignerTable>,
    #[serde(default)]
    pub(super) peer: Vec<PeerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ListenTable {
    pub(super) addresses: Spanned<Vec<Spanned<String>>>,
    pub(super) threads: Option<Spanned<u32>>,
    pub(super) key: Option<Spanned<String>>,
    pub(super) certificate: Option<Spanned<String>>,
    pub(super) authority: Option<Spanned<String>>,
    pub(super) revoked: Option<Spanned<String>>,
    pub(super) max_connections: Option<Spanned<u32>>,
    pub(super) drain: Option<Spanned<Time>>,
    #[serde(default)]
    pub(super) share_stats: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MetricsTable {
    pub(super) address: Spanned<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LogTable {
    pub(super) level: Option<Spanned<String>>,
    pub(super) audit: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FaultsTable {
    pub(super) level: Option<Spanned<String>>,
    pub(super) max_run_time: Option<Time>,
    pub(super) stack_bytes: Option<Spanned<Size>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RunnersTable {
    pub(super) memory_bytes: Option<Size>,
    pub(super) cpu_time: Option<Time>,
    pub(super) max_runners: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) without_landlock: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct QuotasTable {
    pub(super) image_bytes: Option<Size>,
    pub(super) code_bytes: Option<Size>,
    pub(super) images: Option<u32>,
    pub(super) payload_bytes: Option<Size>,
    pub(super) answer_bytes: Option<Size>,
    pub(super) installs_per_second: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StoreTable {
    pub(super) file: Spanned<String>,
    pub(super) durability: Option<Spanned<String>>,
    pub(super) cache_bytes: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FilesTable {
    pub(super) folder: Spanned<String>,
    #[serde(default)]
    pub(super) writable: bool,
    pub(super) max_file_bytes: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MemoryTable {
    pub(super) max_bytes: Size,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SignerTable {
    pub(super) name: Spanned<String>,
    pub(super) public: Option<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PeerTable {
    pub(super) name: Spanned<String>,
    pub(super) public: Option<Spanned<String>>,
    pub(super) file: Option<Spanned<String>>,
    pub(super) certificate: Option<Spanned<String>>,
    pub(super) user: Option<Spanned<User>>,
    pub(super) capabilities: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) unsigned: bool,
    pub(super) signers: Option<Vec<Spanned<String>>>,
    pub(super) namespace: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    pub(super) writes_files: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) quotas: PeerQuotasTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PeerQuotasTable {
    pub(super) calls_per_second: Option<u32>,
    pub(super) invocations_per_second: Option<u32>,
    pub(super) run_time: Option<Time>,
    pub(super) run_time_per_second: Option<Time>,
    pub(super) in_flight: Option<u32>,
    pub(super) image_bytes: Option<Size>,
    pub(super) code_bytes: Option<Size>,
    pub(super) images: Option<u32>,
    pub(super) installs_per_second: Option<u32>,
    pub(super) payload_bytes: Option<Size>,
    pub(super) answer_bytes: Option<Size>,
    pub(super) store_bytes: Option<Size>,
    pub(super) memory_bytes: Option<Size>,
}

/// A number of bytes: `4096`, or `"64 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl Size {
    pub(super) fn usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.replace('_', "").parse().ok()?;
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return None,
        };
        number.checked_mul(1 << shift).map(Self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, such as `65_536` or `\"64 MiB\"`")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Size, E> {
                let number = u64::try_from(number);
                number
                    .map(Size)
                    .map_err(|_| E::custom("a number of bytes is not negative"))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
                Ok(Size(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                let what = format!(
                    "`{text}` is not a number of bytes: write `65_536`, `\"64 MiB\"`, with `KiB`, `MiB`, `GiB` or `TiB`"
                );
                Size::parse(text).ok_or_else(|| E::custom(what))
            }
        }
        from.deserialize_any(Bytes)
    }
}

/// A time: `"20ms"`, `"2s"`, `"10min"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl Time {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().ok()?;
        Some(Self(match unit.trim_start() {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "min" => Duration::from_secs(number.checked_mul(60)?),
            _ => return None,
        }))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let what = format!("`{text}` is not a time: write `\"20ms\"`, `\"2s\"` or `\"10min\"`");
        Self::parse(&text).ok_or_else(|| D::Error::custom(what))
    }
}

/// A user of this host: a number, or the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    Own,
    Number(u32),
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Users;
        const WRITE: &str =
            "write the number that `id -u NAME` prints, or `\"own\"` for the daemon's own user";
        impl Visitor<'_> for Users {
            type Value = User;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a user, or `\"own\"`")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<User, E> {
                let number = u32::try_from(number);
                number
                    .map(User::Number)
                    .map_err(|_| E::custom(format!("there is no such user: {WRITE}")))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<User, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(-1))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<User, E> {
                match text {
                    "own" => Ok(User::Own),
                    _ => Err(E::custom(format!("`{text}` is not a user: {WRITE}"))),
                }
            }
        }
        from.deserialize_any(Users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let size = |text| Size::parse(text).map(|size| size.0);
        assert_eq!(size("64 MiB"), Some(64 << 20));
        assert_eq!(size("1_000"), Some(1000));
        assert_eq!(size("2GiB"), Some(2 << 30));
        for wrong in ["", "MiB", "1 MB", "1.5 MiB", "99999999 TiB"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        let time = |text| Time::parse(text).map(|time| time.0);
        assert_eq!(time("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(time("3 min"), Some(Duration::from_secs(180)));
        for wrong in ["", "2", "s", "2h", "-1s"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
