//! A host that vanishes: a network namespace, joined to this one by two devices, one of which is switched off.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::two_processes::{Other, child_command, echoes, ready};
use super::*;
use crate::transport::ConnectConfig;

/// What the survivor is told to bear.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);
/// And what a busy machine takes to notice.
const SLACK: Duration = Duration::from_secs(10);

/// A namespace and the devices that lead there. Gone when it is dropped.
struct Host {
    name: String,
    here: String,
    there: String,
}

fn ip(args: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(args.split(' '))
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "ip {args}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}

impl Host {
    /// `10.77.x.1` is here, `10.77.x.2` there.
    fn new() -> Result<(Self, String), String> {
        let id = std::process::id();
        let net = id % 250;
        let host = Self {
            name: format!("ifunc-{id}"),
            here: format!("ifn{id}a"),
            there: format!("ifn{id}b"),
        };
        let Self { name, here, there } = &host;
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "link add {here} type veth peer name {there} netns {name}"
        ))?;
        ip(&format!("addr add 10.77.{net}.1/24 dev {here}"))?;
        ip(&format!("link set {here} up"))?;
        ip(&format!("-n {name} addr add 10.77.{net}.2/24 dev {there}"))?;
        ip(&format!("-n {name} link set {there} up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        // The kernel reports a device as running only some time after its link is up, and UCX uses no other.
        let until = soon();
        for show in [
            format!("-o link show {here}"),
            format!("-n {name} -o link show {there}"),
        ] {
            while !ip(&show)?.contains("state UP") {
                assert!(Instant::now() < until, "ip {show}: the device does not run");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok((host, format!("10.77.{net}.2")))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.here));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// A source that waits, or sends, until its target is gone.
pub(super) fn survive(address: &str) {
    let config = ConnectConfig {
        peer_timeout: PEER_TIMEOUT,
        ..ConnectConfig::default()
    };
    let mut link = crate::transport::Route::Address(address.parse().unwrap())
        .connect(&config, soon())
        .unwrap();
    echoes(&mut link, 1, 3000).unwrap();
    let sends = std::env::var_os("IFUNC_TEST_SENDS").is_some();
    ready(&link.waiter.carried_by());
    let until = soon();
    let body = content(7, 20_000);
    let gone = loop {
        if sends && let Err(gone) = send(&mut link, &body) {
            break gone;
        }
        match receive(&mut link) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(gone) => break gone,
        }
        assert!(Instant::now() < until, "a host that vanished was not missed");
        if link.rx().arm() {
            link.waiter
                .sleep(Instant::now() + Duration::from_millis(20), None);
        }
        link.rx().disarm();
    };
    ready(&gone.to_string());
}

#[test]
fn a_host_that_vanishes_is_missed_in_time_also_with_something_under_way() {
    if !has_ucx() {
        return;
    }
    for sends in [false, true] {
        let (host, there) = match Host::new() {
            Ok(host) => host,
            Err(why) => {
                eprintln!(
                    "NOT TESTED, a host that vanishes: network namespaces need root and `ip` of iproute2: {why}"
                );
                return;
            }
        };
        let exec = ["ip", "netns", "exec", &host.name];
        // Both are on this machine, whatever namespace they are in.
        let tcp = ("UCX_TLS", "tcp,self");
        let other = Other::start_by(&exec, "echo", &format!("ucx://{there}:0"), &[tcp]);
        let mut command = child_command(&[], "survive", &other.said);
        command
            .envs([tcp, ("UCX_NET_DEVICES", &host.here)])
            .stdout(Stdio::piped());
        if sends {
            command.env("IFUNC_TEST_SENDS", "y");
        }
        let mut survivor = command.spawn().unwrap();
        let mut said = BufReader::new(survivor.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| Some(line.split_once("ready ")?.1.to_owned()));
        let over = said.next().expect("it connects");
        assert!(over.contains(&format!("tcp/{}", host.here)), "{over}");
        ip(&format!("-n {} link set {} down", host.name, host.there)).unwrap();
        let vanished = Instant::now();
        let gone = said.next().expect("it misses the other host");
        let took = vanished.elapsed();
        println!("sends: {sends}, over {over}: {gone} after {took:?}");
        assert!(took < PEER_TIMEOUT + SLACK, "missed after {took:?}");
        survivor.wait().unwrap();
    }
}
