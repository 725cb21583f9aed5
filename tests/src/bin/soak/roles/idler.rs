//! Connections on which nothing happens.

use ifunc_rt::{Policy, Source, Target};

use super::{Arguments, Result, connect, library, say, wait_for_driver};
use crate::ledger::{Ledger, turn};

/// `address`, `connections`: as many, in this process. A `loopback:` address is listened at as well.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let address = args.text("address")?;
    let serving = match address.starts_with("loopback:") {
        true => {
            // SAFETY: the only source is this process itself.
            let mut target = Target::builder()
                .policy(unsafe { Policy::trust_every_peer() })
                .listen(address)?;
            let stop = target.stop_handle();
            // Not `spawn`: the ledger is too large for a thread's stack.
            let mut ledger = Box::<Ledger>::default();
            let thread = std::thread::spawn(move || target.serve(&mut *ledger));
            Some((stop, thread))
        }
        false => None,
    };
    let sources = (0..args.number("connections")?)
        .map(|source| {
            let connection = connect(args)?;
            // SAFETY: built from this checkout.
            let ledger = unsafe { connection.load_path(library(args, "t_soak_turn")?)? };
            drop(ledger.call(&turn::payload(turn::HELLO, source, 0))?.wait()?);
            Ok((connection, ledger))
        })
        .collect::<Result<Vec<(Source, _)>>>()?;
    say("idle");
    wait_for_driver();
    for (_, ledger) in &sources {
        drop(ledger.call(&turn::payload(turn::GOODBYE, 0, 0))?.wait()?);
    }
    drop(sources);
    if let Some((stop, thread)) = serving {
        stop.stop();
        thread.join().map_err(|_| "the target panicked")??;
    }
    say("done");
    Ok(())
}
