//! The other process: a target that knows no case.

use std::path::Path;

use corpus_case::World;
use ifunc_rt::Target;

use crate::{Failure, host};

/// Serves until the driver is gone.
pub(crate) fn serve(address: &str, library: &Path) -> Result<(), Failure> {
    // SAFETY: the corpus of this checkout, sent by the driver that started this process.
    let mut builder = unsafe { Target::builder().accept_code() };
    for (name, pointer) in host::names(library)? {
        builder = builder.allow(name, pointer);
    }
    let mut target = builder.listen(address)?;
    std::thread::spawn(|| {
        // Nothing is ever said; the end is what is waited for.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    println!("ifunc: ready {}", target.address());
    Ok(target.serve(&mut World::new())?)
}
