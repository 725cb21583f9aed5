//! Connections on which nothing happens.

use ifunc_rt::{Source, Target};

use super::{Arguments, Result, connect, library, say, wait_for_driver};
use crate::book::{Book, turn};

/// `address`, `connections`: as many, in this process. A `loopback:` address is listened at as well.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let address = args.text("address")?;
    let serving = match address.starts_with("loopback:") {
        true => {
            // SAFETY: the only source is this process itself.
            let mut target = unsafe { Target::builder().accept_code() }.listen(address)?;
            let stop = target.stop_handle();
            // Not `spawn`: the books are too large for a thread's stack.
            let mut book = Box::<Book>::default();
            let thread = std::thread::spawn(move || target.serve(&mut *book));
            Some((stop, thread))
        }
        false => None,
    };
    let sources = (0..args.number("connections")?)
        .map(|source| {
            let connection = connect(args)?;
            // SAFETY: built from this checkout.
            let books = unsafe { connection.load_path(library(args, "t_soak_turn")?)? };
            drop(books.call(&turn::payload(turn::HELLO, source, 0))?.wait()?);
            Ok((connection, books))
        })
        .collect::<Result<Vec<(Source, _)>>>()?;
    say("idle");
    wait_for_driver();
    for (_, books) in &sources {
        drop(books.call(&turn::payload(turn::GOODBYE, 0, 0))?.wait()?);
    }
    drop(sources);
    if let Some((stop, thread)) = serving {
        stop.stop();
        thread.join().map_err(|_| "the target panicked")??;
    }
    say("done");
    Ok(())
}
