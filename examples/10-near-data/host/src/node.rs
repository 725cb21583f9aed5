//! The node: a folder with a file, and an `ifuncd` beside it.

use std::env;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use ifuncd::config::Config;
use ifuncd::daemon::Daemon;

use crate::{FILE, Failure, Options};

/// Makes the file, and serves its folder at the address of `IFUNC_ADDR`.
///
/// # Errors
/// The address is none at which an ifuncd listens; the file cannot be written.
pub fn target() -> Result<(), Failure> {
    let options = Options::parse()?;
    let address =
        env::var("IFUNC_ADDR").map_err(|_| "IFUNC_ADDR is not set; help: `cargo ifunc run 10-near-data`")?;
    let folder = Folder::new()?;
    write_file(&folder.0.join(FILE), options.bytes)?;
    let text = configuration(&address, &folder.0)?;
    let config = Config::of_text(&text, &folder.0.join("ifuncd.toml"))?;
    // What the program `ifuncd` does with its file.
    // SAFETY: the peers of the configuration may do here whatever their capabilities allow.
    unsafe { Daemon::start(config, None) }?.run()?;
    Ok(())
}

/// The configuration: one peer, which may read files.
fn configuration(address: &str, folder: &Path) -> Result<String, Failure> {
    let folder = folder.display();
    let mut text = format!("[listen]\naddresses = [\"{address}\"]\n");
    let identity = if address.starts_with("shm:") {
        "user = \"own\"".to_owned()
    } else {
        let variable = |name| {
            env::var(name)
                .map_err(|_| format!("{name} is not set: sources of other hosts are known by their keys"))
        };
        writeln!(text, "key = \"{}\"", variable("IFUNC_TLS_KEY")?)?;
        format!("file = \"{}\"", variable("IFUNC_TLS_PEERS")?)
    };
    write!(
        text,
        "[faults]\nlevel = \"process\"\nmax-run-time = \"60s\"\n[files]\nfolder = \"{folder}\"\n\
         [[peer]]\nname = \"analyst\"\n{identity}\ncapabilities = [\"files\"]\nunsigned = true\n"
    )?;
    Ok(text)
}

/// Writes lines up to a length: made-up measurements of a thousand sensors.
fn write_file(path: &Path, bytes: u64) -> Result<(), Failure> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut written, mut row, mut state) = (0, 0_u64, 1_u64);
    let mut line = String::new();
    while written < bytes {
        // A generator of Marsaglia's: the same rows at each start.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (sensor, value) = (state % 1000, (state >> 32) % 10_000);
        let sign = if state >> 63 == 0 { "" } else { "-" };
        line.clear();
        writeln!(
            line,
            "{},{sensor},{sign}{}.{:02}",
            1_700_000_000 + row,
            value / 100,
            value % 100
        )?;
        file.write_all(line.as_bytes())?;
        written += line.len() as u64;
        row += 1;
    }
    Ok(file.flush()?)
}

/// A folder that is gone with the program.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let path = env::temp_dir().join(format!("ifunc-near-data-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
