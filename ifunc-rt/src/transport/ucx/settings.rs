//! How UCX is set up where the environment does not say otherwise.

use std::net::IpAddr;
use std::time::Duration;

use ::ucx::{Config, Library, Version};

use super::handshake::Mode;
use super::tcp_watch::Watch;

/// What differs from UCX's own defaults: the prefix that a transport's settings have, the name, the value. `UCX_` and both
/// is the variable that overrides it.
///
/// A process that ends is noticed at once, because its sockets are closed, and a host that vanishes by TCP's probes. At `ucx-worker:` there is no
/// socket of an exchange: where the transport is not TCP, UCX's own probe notices both.
fn settings(peer_timeout: Duration) -> Vec<(&'static str, &'static str, String)> {
    let Probes { idle, every, count } = Probes::within(peer_timeout);
    let seconds = |seconds: u64| format!("{seconds}s");
    vec![
        ("", "KEEPALIVE_INTERVAL", seconds(idle)),
        ("TCP_", "KEEPIDLE", seconds(idle)),
        ("TCP_", "KEEPINTVL", seconds(every)),
        ("TCP_", "KEEPCNT", count.to_string()),
        // A connection whose end is to be noticed does without UCX's shared memory otherwise: see `is_used`.
        ("", "MM_ERROR_HANDLING", "y".into()),
    ]
}

/// Nothing shorter can be had: probes count in seconds.
const LEAST: Duration = Duration::from_secs(2);

/// How a silent peer is asked whether it is there. In seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probes {
    /// Silence before the first.
    idle: u64,
    /// Between two.
    every: u64,
    /// How many may stay unanswered.
    count: u64,
}

impl Probes {
    /// As many as there is time for, up to three, so that all of them are over within `timeout`.
    fn within(timeout: Duration) -> Self {
        // More than a year is as good as never, and must fit what the kernel counts with.
        let total = timeout.clamp(LEAST, Duration::from_secs(32_000)).as_secs();
        let idle = (total * 2 / 5).max(1);
        let every = (total / 5).max(1);
        Self {
            idle,
            every,
            count: ((total - idle) / every).clamp(1, 3),
        }
    }
}

/// The last version of UCX that was seen to write beyond its memory when it accepts a connection over IPv6 (`uct_tcp_ep_t`
/// holds the address of the peer, and has room for one of IPv4).
const NO_IPV6: (u32, u32) = (1, 13);

/// The first version that may put over several lanes. UCX complains of settings that it does not know.
const RAILS: (u32, u32) = (1, 14);

/// Whether this UCX can be used by way of `address`.
///
/// # Errors
/// Why not, and what to do.
pub(super) fn check_version(version: Version, address: IpAddr) -> Result<(), String> {
    if address.is_ipv6() && (version.major, version.minor) <= NO_IPV6 {
        return Err(format!(
            "UCX {version} corrupts its memory when it connects over IPv6, so `{address}` is not used; help: use an address of IPv4, or UCX 1.14 or newer"
        ));
    }
    Ok(())
}

/// UCX's configuration for connections by way of `address`, or of any device, whose peers are given up after a silence of
/// `peer_timeout`. What the environment sets stays.
pub(super) fn config(
    ucx: Library,
    address: Option<IpAddr>,
    peer_timeout: Duration,
    mode: Mode,
) -> Result<Config, ::ucx::Error> {
    let (mut config, version) = (ucx.config()?, ucx.version());
    let tls = std::env::var("UCX_TLS").ok();
    let mut settings = settings(peer_timeout);
    settings.retain(|(_, name, _)| is_used(name, tls.as_deref(), mode));
    if address.is_some() {
        // The socket of the exchange tells the end of a process and of a host. UCX 1.13 ends this process when its probe meets an endpoint
        // over TCP whose peer has left while it was being connected.
        settings.retain(|(_, name, _)| *name != "KEEPALIVE_INTERVAL");
        settings.push(("", "KEEPALIVE_INTERVAL", "inf".into()));
    }
    if (version.major, version.minor) >= RAILS {
        // A fence orders the puts of one lane; over several it would wait for the peer.
        settings.push(("", "MAX_RMA_RAILS", "1".into()));
    }
    if mode == Mode::Puts {
        // By default UCX uses both POSIX and System V shared memory. A process that is killed leaves more of POSIX's behind; and where UCX
        // cannot attach one kind of a source that was killed, it keeps what it has attached of the other.
        settings.push(("", "TLS", "^posix".into()));
    }
    if address.is_some_and(|address| address.is_loopback()) {
        // UCX opens a port on every device that it may use, on which it believes what it is sent.
        settings.push(("", "NET_DEVICES", "lo".into()));
    }
    if address.is_none() {
        // UCX parks transports that no endpoint uses, and what arrives over one of those does not wake a thread that sleeps on the
        // worker: a first message would wait for ever. (A listener makes endpoints itself.)
        settings.push(("", "ADAPTIVE_PROGRESS", "n".into()));
    }
    for (prefix, name, value) in settings {
        let full = format!("{prefix}{name}");
        if std::env::var_os(format!("UCX_{full}")).is_none()
            && let Err(status) = config.set(prefix, name, &value)
        {
            tracing::debug!(full, value, %status, "UCX does not take this setting");
        }
    }
    Ok(config)
}

/// Ends connections of silent peers, beside what UCX does.
pub(super) fn watch(peer_timeout: Duration) -> Option<Watch> {
    Watch::new(peer_timeout.max(LEAST))
}

/// Whether a setting is made, where `tls` is the value of `UCX_TLS`. UCX warns of those that belong to transports which this leaves out.
///
/// UCX's shared memory carries messages only where it is named: all senders share the receiver's queue, and one that is killed after it has
/// taken an element and before it has filled it stops the queue for all of them, for ever. Puts do not take it.
fn is_used(name: &str, tls: Option<&str>, mode: Mode) -> bool {
    let named = tls.filter(|tls| !tls.starts_with('^'));
    let names = |names: &[&str]| named.is_some_and(|tls| tls.split(',').any(|tl| names.contains(&tl)));
    let is_any = named.is_none() || names(&["all"]);
    match name {
        "MM_ERROR_HANDLING" => {
            names(&["sm", "shm", "mm", "posix", "sysv", "xpmem"]) || is_any && mode == Mode::Puts
        }
        "KEEPIDLE" | "KEEPINTVL" | "KEEPCNT" => is_any || names(&["tcp"]),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_transports_that_are_left_out_are_not_made() {
        for (tls, messages, puts, tcp) in [
            (None, false, true, true),
            (Some("all"), false, true, true),
            (Some("tcp"), false, false, true),
            (Some("self,sm"), true, true, false),
            (Some("tcp,posix"), true, true, true),
            (Some("^ib"), false, true, true),
        ] {
            for (mode, memory) in [(Mode::Messages, messages), (Mode::Puts, puts)] {
                assert_eq!(is_used("MM_ERROR_HANDLING", tls, mode), memory, "{tls:?}");
                assert_eq!(is_used("KEEPIDLE", tls, mode), tcp, "{tls:?}");
                assert!(is_used("KEEPALIVE_INTERVAL", tls, mode));
            }
        }
    }

    #[test]
    fn probes_end_within_the_time_that_they_are_given() {
        let probes = |seconds| {
            let Probes { idle, every, count } = Probes::within(Duration::from_secs(seconds));
            assert!(
                idle + every * count <= seconds.max(2),
                "{seconds} s: {idle} {every} {count}"
            );
            (idle, every, count)
        };
        assert_eq!(
            [0, 2, 3, 5, 10, 60].map(probes),
            [(1, 1, 1), (1, 1, 1), (1, 1, 2), (2, 1, 3), (4, 2, 3), (24, 12, 3)]
        );
        assert!(Probes::within(Duration::MAX).idle < 32_768);
    }

    #[test]
    fn silent_peers_are_looked_for_unless_the_environment_has_its_own_word() {
        let chosen = |name: &&str| std::env::var_os(format!("UCX_TCP_{name}")).is_some();
        let any = ["KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT"]
            .iter()
            .any(chosen);
        assert_eq!(watch(Duration::ZERO).is_none(), any);
    }

    #[test]
    fn ipv6_is_refused_where_it_is_dangerous() {
        let version = |minor| Version {
            major: 1,
            minor,
            release: 1,
        };
        let (four, six) = ("127.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        assert_eq!(check_version(version(13), four), Ok(()));
        assert_eq!(check_version(version(14), six), Ok(()));
        let why = check_version(version(13), six).unwrap_err();
        assert!(
            why.contains("UCX 1.13.1") && why.contains("help: use an address of IPv4"),
            "{why}"
        );
    }
}
