//! Two processes, one of which ends without notice.
//!
//! The other process is this test's executable again, told by the environment to be [`child`].

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::in_hand::Pair;
use super::*;
use crate::transport::ucx::handshake::Mode;

const ROLE: &str = "IFUNC_TEST_ROLE";
const ADDRESS: &str = "IFUNC_TEST_ADDRESS";
/// Within which the end of a peer must be noticed, on a machine that is busy with other things. The fault matrix measures how soon.
const NOTICE: Duration = Duration::from_secs(10);

/// Another process. Killed when it is dropped.
pub(super) struct Other {
    child: Child,
    /// What it said when it was ready.
    pub(super) said: String,
}

/// This program as another process, by way of the program that `by` names with its arguments.
pub(super) fn child_command(by: &[&str], role: &str, address: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match by {
        [] => Command::new(this),
        [by, args @ ..] => {
            let mut command = Command::new(by);
            command.args(args).arg(this);
            command
        }
    };
    let test = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    command
        .stdin(Stdio::piped())
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([(ROLE, role), (ADDRESS, address)]);
    command
}

impl Other {
    /// Starts one, and waits until it is ready.
    pub(super) fn start(role: &str, address: &str, env: &[(&str, &str)]) -> Self {
        Self::start_by(&[], role, address, env)
    }

    /// Starts one by way of another program, and waits until it is ready.
    pub(super) fn start_by(by: &[&str], role: &str, address: &str, env: &[(&str, &str)]) -> Self {
        let mut child = child_command(by, role, address)
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines
            .map(Result::unwrap)
            .find_map(|line| Some(line.split_once("ready ")?.1.to_owned()));
        Self {
            child,
            said: said.unwrap_or_else(|| panic!("{role} did not start")),
        }
    }

    pub(super) fn address(&self) -> Address {
        self.said.parse().unwrap()
    }

    /// As `kill -9`; when it returns, the process is no more.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Processor time that it used, in ticks of 10 ms.
    pub(super) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    pub(super) fn fds(&self) -> Vec<String> {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .map(|open| open.display().to_string())
            .collect()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The inodes of the sockets that a process has open.
pub(super) fn sockets(process: u32) -> Vec<String> {
    let fds = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    fds.flatten()
        .filter_map(|fd| {
            let link = std::fs::read_link(fd.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

/// The local addresses, as the kernel prints them, of those among these sockets by which others reach a process over the network.
pub(super) fn reachable_at(process: u32, sockets: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let lines = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap();
        for line in lines.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (local, state, inode) = (fields[1], fields[3], fields[9]);
            let listens = state == "0A" || table.starts_with("udp");
            if listens && sockets.iter().any(|own| own == inode) {
                found.push(local.to_owned());
            }
        }
    }
    found
}

/// What the other process does.
#[test]
#[ignore = "role: a part of the other tests here"]
fn child() {
    let (Ok(role), Ok(address)) = (std::env::var(ROLE), std::env::var(ADDRESS)) else {
        return;
    };
    // Where UCX aborts the process of the tests, this input ends, and with it this process.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    match role.as_str() {
        "echo" => echo(&address),
        "echoes" => be_echoed(&address),
        "survive" => super::vanished::survive(&address),
        "exit" => exit_beside_connections(&address),
        "sleeper" => super::sleeping::sleep_beside_ending_socket(),
        "left" => super::leaving::be_left(),
        "long-bodies" => super::long_bodies::receive_long_body(),
        "stream" => stream(connect(&address.parse().unwrap(), soon()).unwrap()),
        role => panic!("no role {role}"),
    }
}

pub(super) fn ready(what: &str) {
    println!("ready {what}");
    std::io::stdout().flush().unwrap();
}

/// Sends back what it gets, to everybody, and sleeps when there is nothing.
fn echo(address: &str) {
    let mut listener = listen(&address.parse().unwrap(), ListenConfig::new(LIMITS)).unwrap();
    ready(&listener.address());
    let mut links: Vec<Link> = Vec::new();
    let forever = Instant::now() + Duration::from_secs(600);
    loop {
        let mut some = false;
        while let Some(link) = listener.accept() {
            links.push(link);
        }
        links.retain_mut(|link| match receive(link) {
            Ok(None) => true,
            Ok(Some((_, body))) => {
                some = true;
                // A source that left does not want it.
                let _ = send(link, &body);
                true
            }
            Err(_) => false,
        });
        if some {
            continue;
        }
        // As a target does it.
        listener.arm();
        links.iter_mut().for_each(|link| link.rx().park());
        listener.fence();
        let quiet = links
            .iter_mut()
            .fold(true, |quiet, link| link.rx().is_idle() & quiet);
        match listener.accept() {
            Some(link) => links.push(link),
            None if quiet => drop(wait_readable(listener.doorbell(), forever)),
            None => {}
        }
        links.iter_mut().for_each(|link| link.rx().disarm());
    }
}

/// Sends for ever.
fn stream(mut link: Link) {
    ready("");
    for n in 0.. {
        let body = content(n, n as usize * 997 % 300_000);
        wait_for("credits", || {
            receive(&mut link).unwrap();
            send(&mut link, &body).unwrap()
        });
    }
}

/// Sends and waits for the same to come back.
pub(super) fn echoes(link: &mut Link, n: u32, len: usize) -> Result<(), LinkError> {
    let body = content(n, len);
    let deadline = soon();
    while send(link, &body)?.is_none() {
        assert!(Instant::now() < deadline);
    }
    loop {
        if let Some((_, back)) = receive(link)? {
            assert!(back == body);
            return Ok(());
        }
        assert!(Instant::now() < deadline, "no echo");
        if link.rx().arm() {
            link.waiter.sleep(Instant::now() + Duration::from_millis(5), None);
        }
        link.rx().disarm();
    }
}

by_each_mode! {
    only_the_loopback_device_is_listened_on,
    frames_cross_and_come_back_by_any_of_ucx_s_transports,
    a_killed_target_is_noticed_and_found_again,
    killed_sources_leave_nothing_and_harm_nobody,
    an_idle_target_costs_no_cpu_and_keeps_nothing_of_those_who_left,
    a_stopped_target_is_not_dead,
}

fn only_the_loopback_device_is_listened_on(mode: Mode) {
    // A process of its own: the other tests of this one have sockets, too.
    let other = Other::start("echo", &any(mode).to_string(), &[]);
    let mut link = connect(&other.address(), soon()).unwrap();
    echoes(&mut link, 1, 10).unwrap();
    let process = other.child.id();
    let reachable = reachable_at(process, &sockets(process));
    // Where sources ask for its worker, and UCX's own port.
    assert!(reachable.len() >= 2, "{reachable:?}");
    assert!(
        reachable.iter().all(|local| local.starts_with("0100007F:")),
        "{reachable:?} beside {}",
        other.said
    );
}

fn frames_cross_and_come_back_by_any_of_ucx_s_transports(mode: Mode) {
    // By an exchange and by the worker's address; UCX's own choice, TCP alone, shared memory alone.
    let puts = any(Mode::Puts).to_string();
    let all = [
        (&*puts, None),
        (&*puts, Some("tcp,self")),
        ("ucx://127.0.0.1:0", None),
        ("ucx://127.0.0.1:0", Some("tcp,self")),
        ("ucx://127.0.0.1:0", Some("sm,self")),
        ("ucx-worker:", None),
        ("ucx-worker:", Some("tcp,self")),
        ("ucx-worker:", Some("sm,self")),
    ];
    for (address, tls) in all {
        if address.starts_with("ucx-put") != (mode == Mode::Puts) {
            continue;
        }
        let tls: Vec<_> = tls.map(|tls| ("UCX_TLS", tls)).into_iter().collect();
        let other = Other::start("echo", address, &tls);
        // As UCX reads its environment once for a context, the source's is a process of its own, too.
        let source = Other::start("echoes", &other.said, &tls);
        let over = &source.said;
        match tls.first() {
            None => assert!(over.contains('/'), "{address}: {over}"),
            Some((_, "sm,self")) => assert!(
                !over.contains("tcp") && over.contains("memory"),
                "{address}: {over}"
            ),
            Some(_) => assert!(
                over.split(' ').all(|lane| lane.starts_with("tcp/")),
                "{address}: {over}"
            ),
        }
    }
}

/// A source whose frames come back from the target at `address`; it says what carries them.
fn be_echoed(address: &str) {
    let mut link = connect(&address.parse().unwrap(), soon()).unwrap();
    for (n, len) in [0, 1, 100, 5000, 60_000, 400_000]
        .into_iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        echoes(&mut link, n as u32, len).unwrap();
    }
    ready(&link.waiter.carried_by());
}

fn a_killed_target_is_noticed_and_found_again(mode: Mode) {
    let mut other = Other::start("echo", &any(mode).to_string(), &[]);
    let to = other.said.clone();
    for round in 0..3 {
        let mut link = connect(&to.parse().unwrap(), soon()).unwrap();
        echoes(&mut link, round, 100).unwrap();
        let epoch = link.hello.epoch;
        other.kill();
        let killed = Instant::now();
        if round == 0 {
            // Asked, as before a send.
            wait_for("its end", || link.waiter.check_peer_closed().then_some(()));
        } else {
            // Asleep.
            while receive(&mut link).is_ok() {
                assert!(killed.elapsed() < NOTICE);
                link.rx().arm();
                link.waiter.sleep(killed + NOTICE, None);
            }
        }
        assert!(killed.elapsed() < NOTICE, "noticed after {:?}", killed.elapsed());
        assert!(matches!(
            link.tx().reserve(1, 1).map(drop),
            Err(LinkError::Closed)
        ));
        // The same port: nothing of the one before keeps it.
        other = Other::start("echo", &to, &[]);
        let mut again = connect(&to.parse().unwrap(), soon()).unwrap();
        assert_ne!(again.hello.epoch, epoch);
        echoes(&mut again, round, 2000).unwrap();
    }
}

fn killed_sources_leave_nothing_and_harm_nobody(mode: Mode) {
    let mut listener = listen(&any(mode), ListenConfig::new(LIMITS)).unwrap();
    let to = listener.address();
    for round in 0..6 {
        let starter = {
            let to = to.clone();
            std::thread::spawn(move || Other::start("stream", &to, &[]))
        };
        let mut link = accept(&mut *listener);
        let mut seen = 0;
        wait_for("frames", || {
            listener.accept();
            seen += u32::from(receive(&mut link).unwrap().is_some());
            (seen > 50 && starter.is_finished()).then_some(())
        });
        let mut other = starter.join().unwrap();
        // Once it is killed in the middle of something that the other side does not receive.
        other.kill();
        let killed = Instant::now();
        wait_for("its end", || {
            listener.accept();
            match receive(&mut link) {
                Err(LinkError::Closed) => Some(()),
                Err(gone) => panic!("{gone}"),
                Ok(_) => None,
            }
        });
        assert!(
            killed.elapsed() < NOTICE,
            "round {round}: noticed after {:?}",
            killed.elapsed()
        );
    }
}

fn an_idle_target_costs_no_cpu_and_keeps_nothing_of_those_who_left(mode: Mode) {
    let other = Other::start("echo", &any(mode).to_string(), &[]);
    let mut fds = Vec::new();
    for _ in 0..4 {
        for n in 0..4 {
            let mut link = connect(&other.address(), soon()).unwrap();
            echoes(&mut link, n, 1000).unwrap();
        }
        // The last one's end is noticed a moment later.
        let deadline = soon();
        let least = loop {
            let now = other.fds();
            if fds.first().is_none_or(|first: &Vec<_>| now.len() <= first.len()) {
                break now;
            }
            assert!(
                Instant::now() < deadline,
                "open still: {now:?}; before: {:?}",
                fds[0]
            );
            std::thread::yield_now();
        };
        fds.push(least);
    }
    let mut link = connect(&other.address(), soon()).unwrap();
    echoes(&mut link, 1, 10).unwrap();
    // Until it has nothing to do.
    let mut ticks = other.ticks();
    wait_for("it to fall asleep", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = other.ticks();
        std::mem::replace(&mut ticks, now).eq(&now).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        other.ticks() - ticks <= 2,
        "{} ticks in 2 s",
        other.ticks() - ticks
    );
    echoes(&mut link, 2, 10).unwrap();
}

fn a_stopped_target_is_not_dead(mode: Mode) {
    use rustix::process::{Pid, Signal, kill_process};
    let other = Other::start("echo", &any(mode).to_string(), &[]);
    let mut link = connect(&other.address(), soon()).unwrap();
    echoes(&mut link, 1, 100).unwrap();
    let pid = Pid::from_child(&other.child);
    kill_process(pid, Signal::STOP).unwrap();
    wait_for("it to stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", other.child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T').then_some(())
    });
    let body = content(2, 1000);
    send(&mut link, &body).unwrap().unwrap();
    // Longer than it takes until UCX looks whether the other side is there.
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(5) {
        assert!(receive(&mut link).unwrap().is_none());
        link.rx().arm();
        link.waiter
            .sleep(Instant::now() + Duration::from_millis(100), None);
        link.rx().disarm();
        assert!(!link.waiter.check_peer_closed());
    }
    kill_process(pid, Signal::CONT).unwrap();
    let (_, back) = wait_for("the echo", || receive(&mut link).unwrap());
    assert!(back == body);
    echoes(&mut link, 3, 300_000).unwrap();
}

/// Nothing but shared memory: no socket ends with the process. UCX itself looks whether it lives.
#[test]
fn a_killed_target_is_noticed_without_any_socket() {
    if !has_ucx() {
        return;
    }
    let sm = [("UCX_TLS", "sm,self")];
    let mut other = Other::start("echo", "ucx-worker:", &sm);
    let mut survivor = child_command(&[], "survive", &other.said)
        .envs(sm)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(survivor.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| Some(line.split_once("ready ")?.1.to_owned()));
    let over = said.next().expect("it connects");
    assert!(over.contains("memory") && !over.contains("tcp"), "{over}");
    other.kill();
    let killed = Instant::now();
    said.next().expect("it misses the target");
    let took = killed.elapsed();
    println!("over {over}: noticed after {took:?}");
    assert!(took < Duration::from_secs(8), "noticed after {took:?}");
    survivor.wait().unwrap();
}

/// Ends this process while another thread makes, uses and closes connections.
fn exit_beside_connections(milliseconds: &str) {
    let began = std::sync::Arc::new(std::sync::Barrier::new(2));
    let begins = began.clone();
    std::thread::spawn(move || {
        for n in 0u64.. {
            let mut pair = Pair::new(Mode::Messages, &small());
            if n == 0 {
                begins.wait();
            }
            for n in 1..100 {
                if send(&mut pair.source, &content(n, 40)).unwrap().is_none() {
                    break;
                }
                let _ = receive(&mut pair.target).unwrap();
            }
        }
    });
    began.wait();
    std::thread::sleep(Duration::from_millis(milliseconds.parse().unwrap()));
    std::process::exit(7);
}

#[test]
fn a_process_may_end_while_a_thread_uses_ucx() {
    if !has_ucx() {
        return;
    }
    for milliseconds in 0..20 {
        let mut child = child_command(&[], "exit", &milliseconds.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(
            output.status.code(),
            Some(7),
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
