//! A target: keeps the ledger until its standard input ends.

use ifunc_rt::{Policy, Target};

use super::{Arguments, Result, say, wait_for_driver};
use crate::ledger::Ledger;

/// `address`, `images`: as many may be installed at a time.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::ERROR)
        .with_writer(std::io::stderr)
        .init();
    let mut ledger = Box::<Ledger>::default();
    // SAFETY: the driver, and what it starts, may do here whatever they like.
    let builder = Target::builder()
        .policy(unsafe { Policy::trust_every_peer() })
        .code_cache(4 << 20, args.number("images")?);
    let mut target = builder.listen(args.text("address")?)?;
    let stop = target.stop_handle();
    std::thread::spawn(move || {
        wait_for_driver();
        stop.stop();
    });
    say(&format!("ready {}", target.address()));
    target.serve(&mut *ledger)?;
    // Its sources have left: nothing is open and nothing is installed for them.
    say(&format!("stopped connections={}", target.connections()));
    Ok(())
}
