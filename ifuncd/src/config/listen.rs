//! Where and how the daemon listens: the table `[listen]`.

use std::time::Duration;

use ifunc_rt::Address;
use ifunc_rt::keys::{Certificate, CertificateAuthority, SecretKey, TlsKeys};
use toml::Spanned;

use super::Listen;
use super::check::Check;
use super::file::{ListenTable, Time};

/// The longest `drain`.
const MAX_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

impl Check<'_> {
    pub(super) fn listen(&mut self, table: ListenTable) -> Listen {
        let mut addresses = Vec::new();
        if table.addresses.get_ref().is_empty() {
            self.wrong(
                "listen.addresses",
                table.addresses.span(),
                "the daemon listens nowhere",
                "write `[\"shm:ifuncd\"]`, or `[\"tls://0.0.0.0:7000\"]`",
            );
        }
        for address in table.addresses.get_ref() {
            if let Err((why, help)) = check_address(address.get_ref(), table.key.is_some()) {
                self.wrong("listen.addresses", address.span(), why, help);
            }
            addresses.push(address.get_ref().clone());
        }
        let keys = table.key.as_ref().and_then(|file| {
            let read = SecretKey::read(self.path_of(file)).map(TlsKeys::new);
            self.or_note(
                "listen.key",
                read.map_err(|error| (file.span(), error.to_string(), None)),
            )
        });
        let keys = match (keys, &table.certificate) {
            (Some(keys), Some(file)) => {
                let read = Certificate::read(self.path_of(file))
                    .and_then(|certificate| keys.certificate(certificate));
                self.or_note(
                    "listen.certificate",
                    read.map_err(|error| (file.span(), error.to_string(), None)),
                )
            }
            (keys, _) => keys,
        };
        let mut authority = table.authority.as_ref().and_then(|file| {
            let read = CertificateAuthority::read(self.path_of(file));
            self.or_note(
                "listen.authority",
                read.map_err(|error| (file.span(), error.to_string(), None)),
            )
        });
        if let Some(file) = &table.revoked {
            authority = match authority {
                Some(authority) => {
                    let read = authority.revoked_by(self.path_of(file));
                    self.or_note(
                        "listen.revoked",
                        read.map_err(|error| (file.span(), error.to_string(), None)),
                    )
                }
                None => {
                    self.wrong(
                        "listen.revoked",
                        file.span(),
                        "there is no `listen.authority` that could have revoked something",
                        "name the authority, too",
                    );
                    None
                }
            };
        }
        let positive = |number: &Option<Spanned<u32>>, default: u32| {
            number.as_ref().map_or(default, |number| *number.get_ref())
        };
        for (key, number) in [
            ("listen.threads", &table.threads),
            ("listen.max-connections", &table.max_connections),
        ] {
            if let Some(number) = number.as_ref().filter(|number| *number.get_ref() == 0) {
                self.wrong(
                    key,
                    number.span(),
                    "with 0 the daemon serves no source",
                    "write at least 1",
                );
            }
        }
        let drain = table.drain.map(|drain| {
            let Time(time) = *drain.get_ref();
            if time > MAX_DRAIN {
                self.wrong(
                    "listen.drain",
                    drain.span(),
                    "a daemon that stops waits for a day at most",
                    "write `\"10s\"`, or another time up to `\"1440min\"`",
                );
            }
            time
        });
        Listen {
            addresses,
            threads: positive(&table.threads, 2) as usize,
            keys,
            authority,
            max_connections: positive(&table.max_connections, 1024) as usize,
            drain: drain.unwrap_or(Duration::from_secs(10)),
            share_stats: table.share_stats,
        }
    }
}

/// Whether the daemon listens at such an address.
fn check_address(text: &str, has_key: bool) -> Result<(), (String, &'static str)> {
    const KNOWN: &str =
        "write `\"shm:NAME\"` for sources of this host, `\"tls://HOST:PORT\"` for those of others";
    let address: Address = match text.parse() {
        Ok(address) => address,
        Err(_) => return Err((format!("`{text}` is not an address"), KNOWN)),
    };
    match address {
        Address::Shm(_) => Ok(()),
        Address::Tls(_) | Address::Ucx(_) | Address::UcxPut(_) if !has_key => Err((
            format!("sources prove by keys who they are at `{text}`, and the daemon has none"),
            "make one by `cargo ifunc keygen ifuncd`, and name it: `key = \"ifuncd.key\"` in `[listen]`",
        )),
        Address::Tls(_) => Ok(()),
        Address::Ucx(_) | Address::UcxPut(_) if cfg!(feature = "ucx") => Ok(()),
        Address::Ucx(_) | Address::UcxPut(_) => Err((
            format!("this program was built without UCX, which `{text}` needs"),
            "write `\"tls://HOST:PORT\"`, or build it with the cargo feature `ucx`",
        )),
        _ => Err((
            format!("no other process reaches `{text}`, or knows where it is"),
            KNOWN,
        )),
    }
}
