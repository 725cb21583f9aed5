//! The target's role: serves at `IFUNC_ADDR`, writes every invocation to the file `FAULT_JOURNAL`, and takes the places at
//! which it is to stand still from its standard input, one a line. With `FAULT_NODE` it joins the group whose addresses are
//! `FAULT_NODES`, separated by commas, under that number.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::sync::OnceLock;

use ifunc_rt::group::Group;
use ifunc_rt::{Policy, Target, failpoints};

use super::role::{RING, begin, say};
use crate::State;

static JOURNAL: OnceLock<File> = OnceLock::new();

/// Writes down that an invocation has begun: to the kernel, where it is safe from this process's end, and before anybody
/// is answered.
#[ifunc::export]
pub fn fault_journal(id: u64, sender: u64) {
    let record = super::ledger::record(id, sender, std::process::id());
    let mut journal = JOURNAL.get().expect("opened before anything is served");
    // One write, which the kernel appends as a whole.
    journal
        .write_all(&record)
        .expect("the journal of a scratch folder can be written");
}

/// Stands still, if it was told to.
#[ifunc::export]
pub fn fault_stand() {
    failpoints::reach("main");
}

/// Serves until it is killed, or its standard input ends.
///
/// # Errors
/// The address cannot be listened at, or the environment lacks something.
pub fn run() -> Result<(), Box<dyn std::error::Error>> {
    begin()?;
    let journal = std::env::var_os("FAULT_JOURNAL").ok_or("FAULT_JOURNAL is not set")?;
    let journal = OpenOptions::new().create(true).append(true).open(journal)?;
    JOURNAL.set(journal).map_err(|_| "it is set once")?;
    // SAFETY: the sources of this test, at an address of this host.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    // As few credits and as small a ring as make the sources wait soon.
    let builder = builder.credits(super::CREDITS).ring(RING);
    let mut target = builder.listen(&std::env::var("IFUNC_ADDR")?)?;
    if let Ok(number) = std::env::var("FAULT_NODE") {
        let nodes = std::env::var("FAULT_NODES")?;
        let group = Group::new(number.parse()?).timeout(super::TIMEOUT);
        let group = (0..)
            .zip(nodes.split(','))
            .try_fold(group, |group, (node, address)| group.node(node, address))?;
        target.join(group)?;
    }
    say(&format!("= ready {}", target.address()));
    let stop = target.stop_handle();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match failpoints::arm(&line) {
                Ok(()) => say("= armed"),
                Err(error) => say(&format!("= {error}")),
            }
        }
        stop.stop();
    });
    target.serve(&mut State::default())?;
    Ok(())
}
