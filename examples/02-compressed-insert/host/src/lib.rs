//! The target owns a database and has no decompressor; the source sends it compressed records and the code
//! that decompresses them.
//!
//! `cargo ifunc run 02-compressed-insert -- DIR [DATABASE]` loads every file below `DIR`. A third process
//! then compares each file with its records in the database. Without `DATABASE`, the database is a temporary
//! file next to the programs, removed after success.

pub mod files;
pub mod store;
pub mod verify;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use example_02_compressed_insert_ifuncs::{Entry, MAX_VALUE, finish_loading, insert_compressed};
use ifunc_rt::{Policy, Source, Target};

use files::Piece;
use store::Store;

/// Owns the database until a source ends the loading.
///
/// # Errors
/// The command line names no folder, the database cannot be created, or the target cannot listen on the
/// address.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    // Without a folder the source would fail, so the target does not start either.
    folder()?;
    let (database, _) = database(addr)?;
    let mut store = Store::create(&database)?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve_until(&mut store, Store::is_finished)?;
    println!("{} records in {}", store.records(), database.display());
    Ok(())
}

/// Sends every file below the folder that the command line names, then starts a process that compares them.
///
/// # Errors
/// A file cannot be read, the target cannot be reached or fails, or the database differs from the files.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let folder = folder()?;
    let (database, is_ours) = database(addr)?;

    let source = Source::connect(addr)?;
    let insert = source.register::<insert_compressed>()?;
    let mut sent = 0;
    let found = files::below(&folder)?;
    for path in &found.files {
        let mut file =
            File::open(folder.join(path)).map_err(|e| format!("cannot open `{}`: {e}", path.display()))?;
        for piece in Piece::all(path) {
            let mut value = Vec::new();
            file.by_ref().take(MAX_VALUE as u64).read_to_end(&mut value)?;
            insert.send(&Entry {
                key: &piece.key(),
                value: &value,
            })?;
            sent += 1;
            if value.len() < MAX_VALUE {
                break;
            }
        }
    }
    // `flush` reports every failure of the messages sent so far.
    source.flush()?;
    println!(
        "sent {} files as {sent} records; {}",
        found.files.len(),
        found.skipped
    );
    source.register::<finish_loading>()?.call(&sent)?.wait()?;

    // The target has closed the database. A process without ifuncs opens it.
    let verify = env::current_exe()?.with_file_name("verify");
    let status = Command::new(verify).arg(&folder).arg(&database).status()?;
    if !status.success() {
        return Err(format!(
            "`verify` failed ({status}); the database is {}",
            database.display()
        )
        .into());
    }
    if is_ours {
        fs::remove_file(database)?;
    }
    Ok(())
}

fn folder() -> Result<PathBuf, Box<dyn Error>> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("which files? help: cargo ifunc run 02-compressed-insert -- DIR [DATABASE]")?;
    if !folder.is_dir() {
        return Err(format!("`{}` is not a folder", folder.display()).into());
    }
    Ok(folder)
}

/// The database's path, and whether it is temporary. Target and source get the same arguments, so they agree.
fn database(addr: &str) -> Result<(PathBuf, bool), Box<dyn Error>> {
    if let Some(path) = env::args_os().nth(2) {
        return Ok((path.into(), false));
    }
    let name = addr.rsplit(':').next().unwrap_or(addr);
    Ok((
        env::current_exe()?.with_file_name(Path::new(name).with_extension("redb")),
        true,
    ))
}
