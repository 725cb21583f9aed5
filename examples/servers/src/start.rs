//! How the servers start and find each other.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ifunc_rt::Target;
use ifunc_rt::group::{Group, Nodes};
use ifunc_rt::rendezvous::{Launched, Published, Rendezvous};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::Failure;

/// Time that all servers have to publish their addresses.
const START: Duration = Duration::from_secs(60);
/// Set for a server that server 0 started: the process id of server 0.
const PARENT: &str = "EXAMPLE_SERVER_0";

/// One of the servers, in its own process or thread.
#[derive(Debug)]
pub struct Server {
    /// Its number.
    pub rank: u32,
    /// Number of servers.
    pub size: u32,
    /// Where it listens.
    address: String,
    meeting: Meeting,
    /// The address of the example, by which a source finds the servers: printed when all of them are ready.
    reports: Option<String>,
}

/// Where the servers publish their addresses.
#[derive(Clone, Debug)]
struct Meeting {
    job: String,
    /// None if the addresses were listed.
    directory: Option<PathBuf>,
    place: Rendezvous,
}

/// Runs `serve` as each of the servers that belong to this process. `addr` is the address that `cargo ifunc run` chose. `serve`
/// listens at [`Server::address`] and calls [`Server::ready`].
///
/// # Errors
/// A server does not start, or `serve` fails.
pub fn run(
    addr: &str,
    servers: u32,
    serve: impl Fn(Server) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    if launched_by_hand() {
        let me = Launched::from_env()?;
        if let Some(parent) = env::var_os(PARENT) {
            end_with(&parent.to_string_lossy())?;
        }
        if me.size != servers {
            return Err(format!("IFUNC_SIZE={}, and `--servers {servers}`", me.size).into());
        }
        let meeting = Meeting {
            place: Rendezvous::from_env(&me.job)?,
            directory: env::var_os("IFUNC_RENDEZVOUS").map(PathBuf::from),
            job: me.job,
        };
        let listed = meeting.place.listed(me.rank);
        return serve(Server {
            rank: me.rank,
            size: me.size,
            address: listed.unwrap_or_else(|| address_of(addr, me.rank)),
            meeting,
            reports: (me.rank == 0).then(|| addr.to_owned()),
        });
    }

    let meeting = Meeting::of(addr)?;
    let server = |rank: u32| Server {
        rank,
        size: servers,
        address: address_of(addr, rank),
        meeting: meeting.clone(),
        reports: (rank == 0).then(|| addr.to_owned()),
    };
    if addr.starts_with("loopback:") {
        return thread::scope(|scope| {
            let threads: Vec<_> = (0..servers)
                .map(|rank| {
                    let (serve, server) = (&serve, server(rank));
                    scope.spawn(move || serve(server))
                })
                .collect();
            let mut ended = threads.into_iter().map(|thread| thread.join());
            ended.try_for_each(|ended| ended.map_err(|_| "a server panicked")?)
        });
    }
    for rank in 1..servers {
        start(rank, servers, &meeting)?;
    }
    serve(server(0))
}

/// The addresses of all servers, for a source. `addr` is the address that `cargo ifunc run` passed.
///
/// # Errors
/// A server does not publish its address in time.
pub fn addresses(addr: &str, servers: u32) -> Result<Vec<String>, Failure> {
    if env::var_os("IFUNC_RENDEZVOUS").is_some() || env::var_os("IFUNC_HOSTS").is_some() {
        let job = env::var("IFUNC_JOB").map_err(|_| "IFUNC_JOB is not set")?;
        let place = Rendezvous::from_env(&job)?;
        return (0..servers).map(|rank| Ok(place.find(rank, START)?)).collect();
    }
    let meeting = Meeting::of(addr)?;
    let found: Result<Vec<_>, Failure> = (0..servers)
        .map(|rank| Ok(meeting.place.find(rank, START)?))
        .collect();
    meeting.end(servers)?;
    found
}

impl Server {
    /// Where this server listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Publishes where this server listens. Server 0 waits until all servers have done so, and reports that it is ready. The
    /// address is published as long as the result lives.
    ///
    /// # Errors
    /// The address cannot be published, or another server was not ready in time.
    pub fn ready(&mut self, target: &Target) -> Result<Published, Failure> {
        let place = &self.meeting.place;
        let published = place.publish(self.rank, &target.address())?;
        if self.reports.is_some() {
            (1..self.size).try_for_each(|rank| place.find(rank, START).map(drop))?;
        }
        self.report()?;
        Ok(published)
    }

    /// Makes the target a node of the group of all servers, whose numbers are their ranks. Server 0 then reports that it is
    /// ready.
    ///
    /// # Errors
    /// The servers do not find each other, or another server was not ready in time.
    pub fn join(&mut self, target: &mut Target) -> Result<Nodes, Failure> {
        let group = Group::meeting(&self.meeting.place, self.rank, self.size);
        let nodes = target.join(group.timeout(START))?;
        self.report()?;
        Ok(nodes)
    }

    fn report(&mut self) -> Result<(), Failure> {
        if let Some(file) = self.meeting.met_file(self.rank) {
            fs::write(file, "")?;
        }
        if let Some(addr) = self.reports.take() {
            println!("ifunc: ready {addr}");
        }
        Ok(())
    }
}

impl Meeting {
    /// A directory beside the programs, which target and source derive from the address that both know.
    fn of(addr: &str) -> io::Result<Self> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = addr.chars().map(plain).collect();
        let directory = env::current_exe()?.with_file_name(format!("meeting-{name}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let place = Rendezvous::in_directory(&directory, &name).map_err(io::Error::other)?;
        Ok(Self {
            job: name,
            directory: Some(directory),
            place,
        })
    }

    /// The file that a server writes when it needs no more addresses.
    fn met_file(&self, rank: u32) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?;
        Some(directory.join(format!("{}-has-met-{rank}", self.job)))
    }

    /// Waits until no server needs addresses any more, and removes them.
    fn end(&self, servers: u32) -> Result<(), Failure> {
        let deadline = Instant::now() + START;
        for file in (0..servers).filter_map(|rank| self.met_file(rank)) {
            while !file.exists() {
                if Instant::now() > deadline {
                    return Err(format!(
                        "a server did not find the addresses of the others in {} s: it did not write `{}`\nhelp: its output \
                         tells why",
                        START.as_secs(),
                        file.display()
                    )
                    .into());
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
        Ok(())
    }
}

/// Whether the variables for one server are set. Those of Open MPI or Slurm alone may be those of the shell that runs `cargo`.
fn launched_by_hand() -> bool {
    env::var_os("IFUNC_RANK").is_some() || env::var_os("IFUNC_RENDEZVOUS").is_some()
}

/// Where a server listens, from the address of server 0.
fn address_of(addr: &str, rank: u32) -> String {
    let host = env::var("IFUNC_HOST").ok();
    match addr.split_once("://") {
        // Server 0 listens where `cargo ifunc run` said; a launcher's servers each on a host of its own.
        Some((scheme, at)) => match host {
            Some(host) => format!("{scheme}://{host}:0"),
            None if rank == 0 => addr.to_owned(),
            None => format!(
                "{scheme}://{}:0",
                at.rsplit_once(':').map_or(at, |(host, _)| host)
            ),
        },
        None if rank == 0 => addr.to_owned(),
        None => format!("{addr}-{rank}"),
    }
}

/// Starts another server in a process of its own. If that fails, so does this one.
fn start(rank: u32, servers: u32, meeting: &Meeting) -> Result<(), Failure> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1))
        .env("IFUNC_RANK", rank.to_string())
        .env("IFUNC_SIZE", servers.to_string())
        .env("IFUNC_JOB", &meeting.job)
        .envs(meeting.directory.iter().map(|at| ("IFUNC_RENDEZVOUS", at)))
        .env(PARENT, std::process::id().to_string());
    let mut child = command.spawn()?;
    thread::spawn(move || match child.wait() {
        // `cargo ifunc run` stops all servers.
        Ok(status) if status.signal() == Some(Signal::TERM.as_raw()) => {}
        Ok(status) => {
            eprintln!("error: server {rank} has ended: {status}");
            std::process::exit(1);
        }
        Err(why) => eprintln!("error: server {rank} cannot be watched: {why}"),
    });
    Ok(())
}

/// Ends this process when server 0 ends, however it ends.
fn end_with(parent: &str) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the call.
    match getppid().map(Pid::as_raw_nonzero) {
        Some(now) if now.to_string() == parent => Ok(()),
        _ => Err("server 0 has ended".into()),
    }
}
