//! The other process: a target without any case linked in.

use std::path::Path;

use corpus_case::World;
use ifunc_rt::{Policy, Target};

use crate::{Failure, host};

/// Serves until the driver ends.
pub(crate) fn serve(address: &str, library: &Path) -> Result<(), Failure> {
    // SAFETY: the driver that started this process sends only the corpus of this checkout.
    let mut builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    for (name, pointer) in host::names(library)? {
        builder = builder.allow(name, pointer);
    }
    let mut target = builder.listen(address)?;
    std::thread::spawn(|| {
        // The driver never writes; the read returns when the driver ends.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    println!("ifunc: ready {}", target.address());
    Ok(target.serve(&mut World::new())?)
}
