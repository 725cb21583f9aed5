//! Impairs the link between two hosts.

use crate::Failure;
use crate::hosts::Host;

/// The name of the interface that every host has.
pub(crate) const INTERFACE: &str = "eth0";

/// Drops some of what arrives at both, by chance.
pub(crate) fn lose(hosts: [&Host; 2], percent: u32) -> Result<(), Failure> {
    let rules = format!(
        "table inet loss {{
            chain arriving {{
                type filter hook input priority 0; policy accept;
                iifname \"{INTERFACE}\" numgen random mod 100 < {percent} counter drop
            }}
        }}\n"
    );
    for host in hosts {
        host.run_with("nft", &["-f", "-"], &rules)?;
    }
    Ok(())
}

/// Lets everything through again; how many frames were dropped.
///
/// # Errors
/// None was: nothing was tried.
pub(crate) fn lose_nothing(hosts: [&Host; 2]) -> Result<u64, Failure> {
    let mut dropped = 0;
    for host in hosts {
        let table = host.run("nft", &["list", "table", "inet", "loss"])?;
        // `… counter packets 7 bytes 3942 drop`
        let packets = table
            .split("counter packets ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        dropped += packets
            .ok_or("`nft` does not say how many were dropped")?
            .parse::<u64>()?;
        host.run("nft", &["delete", "table", "inet", "loss"])?;
    }
    match dropped {
        0 => Err("no frame was lost".into()),
        dropped => Ok(dropped),
    }
}

/// Sends no faster than this, from both.
pub(crate) fn slow(hosts: [&Host; 2], megabits: u32) -> Result<(), Failure> {
    let rate = format!("{megabits}mbit");
    for host in hosts {
        let queue = ["qdisc", "add", "dev", INTERFACE, "root"];
        let bucket = ["tbf", "rate", &rate, "burst", "32kb", "latency", "100ms"];
        host.run("tc", &[&queue[..], &bucket[..]].concat())?;
    }
    Ok(())
}

/// Sends as fast as can be again.
pub(crate) fn slow_no_more(hosts: [&Host; 2]) -> Result<(), Failure> {
    for host in hosts {
        host.run("tc", &["qdisc", "delete", "dev", INTERFACE, "root"])?;
    }
    Ok(())
}

/// Takes the interface of a host down, or brings it up: the other end has no carrier then.
pub(crate) fn link(host: &Host, up: bool) -> Result<(), Failure> {
    host.run("ip", &["link", "set", INTERFACE, if up { "up" } else { "down" }])?;
    Ok(())
}
