//! Two processes, one of which ends without notice.
//!
//! The other process is this test's executable again, told by the environment to be [`child`].

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::unauthenticated::knock;
use super::{LIMITS, accept, name, receive, send, shm, small, soon};
use crate::os::wait_readable;
use crate::transport::shm::directory::candidates;
use crate::transport::{ConnectError, Link, LinkError, ListenConfig, connect, listen};

const ROLE: &str = "IFUNC_TEST_ROLE";
const NAME: &str = "IFUNC_TEST_NAME";
/// Within which the end of a peer must be noticed, on a machine that is busy with other things. The fault matrix measures how soon.
const NOTICE: Duration = Duration::from_secs(10);

/// Another process. Killed when it is dropped.
struct Other(Child);

impl Other {
    /// Starts one, and waits until it is ready.
    fn start(role: &str, name: &str) -> Self {
        let test = concat!(module_path!(), "::child").split_once("::").unwrap().1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .envs([(ROLE, role), (NAME, name)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().contains("ready")),
            "{role} did not start"
        );
        Self(child)
    }

    /// As `kill -9`; when it returns, the process is no more.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn proc(&self, what: &str) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string()).join(what)
    }

    /// Processor time that it used, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn segments(&self) -> usize {
        std::fs::read_to_string(self.proc("maps"))
            .unwrap()
            .matches("memfd:ifunc-shm")
            .count()
    }

    fn fds(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does.
#[test]
#[ignore = "role: a part of the other tests here"]
fn child() {
    let (Ok(role), Ok(name)) = (std::env::var(ROLE), std::env::var(NAME)) else {
        return;
    };
    match role.as_str() {
        "echo" => echo(&name),
        "starved echo" => {
            let limit = Rlimit {
                current: Some(24),
                maximum: Some(24),
            };
            setrlimit(Resource::Nofile, limit).unwrap();
            echo(&name);
        }
        "stream" => stream(connect(&shm(&name), soon()).unwrap()),
        "burst" => {
            let mut link = connect(&shm(&name), soon()).unwrap();
            for n in 0..4000u32 {
                send(&mut link, &content(n)).unwrap().unwrap();
            }
            ready();
            std::process::abort();
        }
        role => panic!("no role {role}"),
    }
}

fn ready() {
    println!("ready");
    std::io::stdout().flush().unwrap();
}

/// Bytes of the `n`th frame.
fn content(n: u32) -> Vec<u8> {
    let mut body = n.to_le_bytes().to_vec();
    body.resize(4 + n as usize % 300, n as u8);
    body
}

/// A target that sends everything back, to any number of sources, and sleeps when there is nothing.
fn echo(name: &str) {
    let mut listener = listen(&shm(name), small()).unwrap();
    let mut links: Vec<Link> = Vec::new();
    ready();
    loop {
        links.extend(listener.accept());
        let mut idle = true;
        links.retain_mut(|link| {
            match receive(link) {
                Ok(Some((_, body))) => {
                    idle = false;
                    link.rx().settle();
                    while matches!(send(link, &body), Ok(None)) {}
                }
                Ok(None) => {}
                Err(_) => return false,
            }
            true
        });
        if idle && links.iter_mut().all(|link| link.rx().arm()) {
            wait_readable(listener.doorbell(), Instant::now() + Duration::from_secs(3600));
            listener.arm();
        }
        links.iter_mut().for_each(|link| link.rx().disarm());
    }
}

/// A source that sends for ever, and sleeps when it has no credits.
fn stream(mut link: Link) {
    ready();
    for n in 0.. {
        let body = content(n);
        while send(&mut link, &body).unwrap().is_none() {
            if link.rx().arm() && link.tx().reserve(body.len(), 8).unwrap().is_none() {
                link.waiter.sleep(soon(), None);
            }
            link.rx().disarm();
        }
    }
}

/// What is in the directory of sockets under `name`.
fn traces(name: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(candidates()[0].path()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(name))
        .collect()
}

/// Milliseconds, different in every round and run.
fn a_while(round: u32) -> Duration {
    let noise = Instant::now().elapsed().subsec_nanos() ^ std::process::id();
    Duration::from_micros(u64::from(round) * 1700 + u64::from(noise % 1000))
}

#[test]
fn a_killed_source_is_noticed_behind_its_last_frame() {
    let name = name("killed-source");
    let mut listener = listen(&shm(&name), ListenConfig::new(LIMITS)).unwrap();
    for round in 0..20 {
        let source = Other::start("stream", &name);
        let mut link = accept(&mut *listener);
        let mut next = 0u32;
        let mut frames = |link: &mut Link| {
            loop {
                match receive(link) {
                    Ok(Some((sequence, body))) => {
                        assert_eq!((sequence, body), (next + 1, content(next)));
                        next += 1;
                    }
                    Ok(None) => {
                        link.rx().settle();
                        return Ok(());
                    }
                    Err(gone) => return Err(gone),
                }
            }
        };
        let until = Instant::now() + a_while(round);
        while Instant::now() < until {
            frames(&mut link).unwrap();
        }
        source.kill();
        let killed = Instant::now();
        let gone = loop {
            if let Err(gone) = frames(&mut link) {
                break gone;
            }
            // Every other time asleep.
            if round % 2 == 0 && link.rx().arm() {
                wait_readable(listener.doorbell(), soon());
                listener.arm();
            }
            assert!(killed.elapsed() < NOTICE);
        };
        assert!(matches!(gone, LinkError::Closed), "{gone}");
    }
    drop(listener);
    assert_eq!(traces(&name), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_target_is_noticed_and_its_name_is_free() {
    let name = name("killed-target");
    for round in 0..10 {
        let target = Other::start("echo", &name);
        let mut link = connect(&shm(&name), soon()).unwrap();
        let other = connect(&shm(&name), soon()).unwrap();
        let until = Instant::now() + a_while(round);
        while Instant::now() < until {
            let _ = send(&mut link, &content(round)).unwrap();
            let _ = receive(&mut link).unwrap();
            link.rx().settle();
        }
        let epoch = link.hello.epoch;
        target.kill();
        let killed = Instant::now();
        if round % 2 == 0 && receive(&mut link).is_ok_and(|frame| frame.is_none()) && link.rx().arm() {
            link.waiter.sleep(soon(), None);
        }
        while !link.waiter.is_peer_closed() || !other.waiter.is_peer_closed() {
            assert!(killed.elapsed() < NOTICE);
        }
        while receive(&mut link).is_ok() {}
        assert!(matches!(
            connect(&shm(&name), soon()),
            Err(ConnectError::NobodyListens { .. })
        ));
        let mut listener = listen(&shm(&name), small()).unwrap();
        let again = connect(&shm(&name), soon()).unwrap();
        assert_ne!(again.hello.epoch, epoch);
        accept(&mut *listener);
        drop(listener);
        assert_eq!(traces(&name), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_a_killed_target_left_goes_with_the_next_one_of_any_name() {
    let name = name("left");
    let living = Other::start("echo", &name);
    drop(listen(&shm(&format!("{name}-other")), small()).unwrap());
    assert_eq!(traces(&name).len(), 2);
    living.kill();
    drop(listen(&shm(&format!("{name}-other")), small()).unwrap());
    assert_eq!(traces(&name), Vec::<PathBuf>::new());
}

#[test]
fn a_living_target_keeps_its_name() {
    let name = name("living");
    let target = Other::start("echo", &name);
    let error = listen(&shm(&name), small()).err().unwrap().to_string();
    assert!(
        error.contains(&format!("in use by process {}", target.0.id())),
        "{error}"
    );
    connect(&shm(&name), soon()).unwrap();
}

#[test]
fn what_a_source_sent_before_it_aborted_arrives() {
    let name = name("burst");
    let mut listener = listen(&shm(&name), ListenConfig::new(LIMITS)).unwrap();
    for _ in 0..5 {
        let mut source = Other::start("burst", &name);
        source.0.wait().unwrap();
        let mut link = accept(&mut *listener);
        for n in 0..4000u32 {
            assert_eq!(receive(&mut link).unwrap(), Some((n + 1, content(n))));
        }
        let ended = Instant::now();
        while receive(&mut link).is_ok() {
            assert!(ended.elapsed() < NOTICE);
        }
    }
}

#[test]
fn an_idle_target_costs_nothing_and_keeps_nothing() {
    let name = name("idle");
    let target = Other::start("echo", &name);
    let fds = target.fds();
    let sources: Vec<_> = (0..10).map(|_| Other::start("stream", &name)).collect();
    assert!(target.segments() > 0);
    std::thread::sleep(Duration::from_millis(50));
    sources.into_iter().for_each(Other::kill);
    let killed = Instant::now();
    while target.segments() > 0 || target.fds() > fds {
        assert!(
            killed.elapsed() < NOTICE,
            "{} mappings, {} files, {fds} before",
            target.segments(),
            target.fds()
        );
    }

    let mut link = connect(&shm(&name), soon()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = target.ticks();
    std::thread::sleep(NOTICE);
    assert!(target.ticks() - before <= 1);
    // And it sleeps lightly.
    send(&mut link, b"up").unwrap().unwrap();
    let deadline = soon();
    while receive(&mut link).unwrap().is_none() {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_target_without_file_descriptors_says_so_and_recovers() {
    let name = name("starved");
    let target = Other::start("starved echo", &name);
    let mut links = Vec::new();
    let problem = loop {
        match connect(&shm(&name), soon()) {
            Ok(link) => links.push(link),
            Err(error) => break error,
        }
        assert!(links.len() < 24);
    };
    assert!(
        matches!(&problem, ConnectError::Busy { reason, .. } if reason.contains("no memory")),
        "{problem}"
    );

    // Now it cannot even accept, and does not spin on that.
    let half_open: Vec<_> = (0..30).map(|_| knock(&name)).collect();
    let problem = connect(&shm(&name), Instant::now() + Duration::from_millis(300))
        .err()
        .unwrap();
    assert!(matches!(problem, ConnectError::Timeout { .. }), "{problem}");
    let before = target.ticks();
    std::thread::sleep(NOTICE);
    // It tries again ten times a second, which the kernel counts as 0 to 6 ticks of 10 ms, by the machine. To spin would be 1000.
    let ticks = target.ticks() - before;
    assert!(ticks <= 20, "{ticks} ticks");

    drop((links, half_open));
    connect(&shm(&name), soon()).unwrap();
}
