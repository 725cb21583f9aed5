//! What the commands that install a C library to a prefix share.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::process::end;

/// The version of the workspace, which its libraries have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cargo xtask COMMAND --prefix DIR [--debug]`. `install` takes the prefix and the name of the profile.
pub(crate) fn command(
    command: &str,
    options: &[String],
    install: fn(&Path, &str) -> Result<(), String>,
) -> ExitCode {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (prefix, profile) = match options[..] {
        ["--prefix", prefix] => (prefix, "release"),
        ["--prefix", prefix, "--debug"] | ["--debug", "--prefix", prefix] => (prefix, "debug"),
        _ => {
            return end(Err(format!(
                "usage: cargo xtask {command} --prefix DIR [--debug]"
            )));
        }
    };
    end(install(Path::new(prefix), profile).map(|()| println!("installed to {prefix}")))
}

/// Installs the library `lib{built}` of a profile as `lib{name}`: static, and shared with the links by which linkers and programs
/// find it.
pub(crate) fn library(
    prefix: &Path,
    profile: &str,
    built: &str,
    name: &str,
    soname: &str,
) -> Result<(), String> {
    let (from, lib) = (crate::target().join(profile), prefix.join("lib"));
    let real = format!("lib{name}.so.{VERSION}");
    copy(&from.join(format!("lib{built}.so")), &lib.join(&real))?;
    copy(
        &from.join(format!("lib{built}.a")),
        &lib.join(format!("lib{name}.a")),
    )?;
    for link in [soname, &format!("lib{name}.so")] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&real, &link)
            .map_err(|e| format!("cannot make the link `{}`: {e}", link.display()))?;
    }
    Ok(())
}

/// Installs a file.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    replace(to, |new| fs::copy(from, new).map(drop))
        .map_err(|e| format!("cannot copy `{}` to `{}`: {e}", from.display(), to.display()))
}

/// Installs a file of this text.
pub(crate) fn write(to: &Path, text: &str) -> Result<(), String> {
    replace(to, |new| fs::write(new, text)).map_err(|e| format!("cannot write `{}`: {e}", to.display()))
}

/// Makes a file beside the old one, which programs may use, and puts it in its place.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    make(Path::new(&new))?;
    fs::rename(&new, path)
}
