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
            let builder = unsafe { Target::builder().accept_code() };
            Some(builder.listen(address)?.spawn(Book::default())?)
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
    if let Some(serving) = serving {
        serving.stop().map_err(|error| error.to_string())?;
    }
    say("done");
    Ok(())
}
