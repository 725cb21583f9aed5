//! A daemon under load, watched from outside: clients that come and go, that do what they may not, and attackers; then one that is killed and
//! started again, while a client goes on.
//!
//! ```sh
//! cargo build -p ifuncd -p ifunc-tests --bin ifuncd --bin hostile
//! cargo ifunc build -p ifuncd-tests-ifuncs
//! cargo run -p ifuncd --example load -- --seconds 1800 --libraries target/ifunc/release target/debug/ifuncd target/debug/hostile
//! ```
//!
//! It fails if a client sees what it should not, if the memory or the descriptors of the daemon grow, or if the sums of the
//! audit log differ from those of the counters.

mod audit;
mod clients;
mod node;
mod watch;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use ifunc_rt::keys::SecretKey;

use clients::{Client, Counts};
use node::Node;
use watch::Watch;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Loads an ifuncd.
#[derive(Debug, Parser)]
struct Args {
    /// The daemon.
    daemon: PathBuf,
    /// The attackers: the program `hostile` of the project's tests. Without it, there are none.
    hostile: Option<PathBuf>,
    /// How long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The folder of the tests' ifuncs.
    #[arg(long)]
    libraries: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let attacker = SecretKey::generate("attacker")?;
    let mut node = Node::start(&args.daemon, &attacker)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (clients, counts) = Client::start_all(&node, &args.libraries, &is_over);
    let attackers = match &args.hostile {
        Some(program) => node.attackers(program, &is_over)?,
        None => Vec::new(),
    };
    let mut watch = Watch::new(Duration::from_secs((args.seconds / 10).clamp(5, 60)));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(args.seconds) {
        std::thread::sleep(Duration::from_secs(args.seconds.clamp(60, 600) / 60));
        watch.look(&node)?;
        if let Some(error) = counts.first_error() {
            return Err(error.into());
        }
        println!("{:6} s  {}  {counts}", began.elapsed().as_secs(), watch.last());
    }
    drop(attackers);
    is_over.store(true, Ordering::Relaxed);
    watch.judge()?;
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    let refusals = audit::compare(&node)?;
    println!("{refusals} refusals, each of them a line of the audit log or counted by one");
    restarts(&mut node, args, &counts)?;
    node.stop()?;
    println!("{counts}");
    println!("ok");
    Ok(())
}

/// Kills the daemon and starts it again while a client goes on.
fn restarts(node: &mut Node, args: &Args, counts: &Arc<Counts>) -> Result<(), Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let client = Client::durable(node, &args.libraries, counts, &is_over);
    let rounds = (args.seconds / 60).clamp(3, 20);
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(1500));
        node.kill()?;
        node.run()?;
    }
    std::thread::sleep(Duration::from_secs(2));
    is_over.store(true, Ordering::Relaxed);
    client.join().map_err(|_| "the client panicked")??;
    println!("killed and started again {rounds} times: the client went on");
    Ok(())
}
