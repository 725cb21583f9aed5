//! Which files the daemon itself reaches: Landlock for the whole process.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, PathFdError,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus,
};

use crate::config::Config;

/// The version of Landlock whose rules are written down here. An older kernel applies those that it knows.
const VERSION: ABI = ABI::V5;

/// Programs and libraries: what a runner process, or a library that is found at run time, is loaded from.
const PROGRAMS: [&str; 6] = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/nix/store"];
/// What the runtime reads of the system.
const SYSTEM: [&str; 2] = ["/proc", "/sys"];

/// Forbids this thread, and those that it starts, every file but those that the configuration names, and the programs of the system. Call
/// it before there are other threads. Returns whether the kernel enforces all of it.
///
/// # Errors
/// A file that the configuration names cannot be opened.
pub fn confine(config: &Config) -> io::Result<bool> {
    let confined = try_confine(config).map_err(io::Error::other)?;
    Ok(confined.ruleset == RulesetStatus::FullyEnforced)
}

#[derive(Debug)]
enum Failed {
    Ruleset(RulesetError),
    Path(PathBuf, PathFdError),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ruleset(error) => write!(f, "{error}"),
            Self::Path(path, error) => write!(f, "`{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for Failed {}

impl From<RulesetError> for Failed {
    fn from(error: RulesetError) -> Self {
        Self::Ruleset(error)
    }
}

fn try_confine(config: &Config) -> Result<RestrictionStatus, Failed> {
    let (read, all) = (AccessFs::from_read(VERSION), AccessFs::from_all(VERSION));
    let read_only = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    for path in PROGRAMS {
        rules = allow(rules, Path::new(path), read, false)?;
    }
    if let Ok(program) = env::current_exe() {
        rules = allow(rules, &program, AccessFs::Execute | AccessFs::ReadFile, false)?;
    }
    for path in SYSTEM {
        rules = allow(rules, Path::new(path), read_only, false)?;
    }
    rules = allow(rules, Path::new("/dev"), read_only | AccessFs::WriteFile, false)?;
    // The configuration and the files of keys are read again on SIGHUP.
    rules = allow(rules, folder_of(&config.path), read_only, true)?;
    if let Some(store) = &config.store {
        rules = allow(rules, folder_of(&store.file), all, true)?;
    }
    if let Some(audit) = &config.log.audit {
        rules = allow(rules, folder_of(audit), all, true)?;
    }
    if let Some(files) = &config.files {
        let write = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::Truncate;
        let access = if files.is_writable {
            read_only | write
        } else {
            read_only
        };
        rules = allow(rules, &files.folder, access, true)?;
    }
    for folder in sockets() {
        rules = allow(rules, &folder, all, false)?;
    }
    Ok(rules.restrict_self()?)
}

/// Allows accesses below a path. One that is not there is left out, unless it `must_be`.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: impl Into<landlock::BitFlags<AccessFs>>,
    must_be: bool,
) -> Result<RulesetCreated, Failed> {
    let mut access = access.into();
    if !path.is_dir() {
        access &= AccessFs::from_file(VERSION);
    }
    match PathFd::new(path) {
        Ok(opened) => Ok(rules.add_rule(PathBeneath::new(opened, access))?),
        Err(_) if !must_be => Ok(rules),
        Err(error) => Err(Failed::Path(path.to_owned(), error)),
    }
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Where the sockets of `shm:` addresses may be: made here if the runtime would make them, because a rule needs a folder that is there.
fn sockets() -> Vec<PathBuf> {
    let folder = |name| {
        env::var_os(name)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    if let Some(prepared) = folder("IFUNC_RUNTIME_DIR") {
        return vec![prepared];
    }
    // The runtime makes its own folder below one of these, and checks whose it is.
    let session = folder("XDG_RUNTIME_DIR");
    let user = rustix::process::geteuid().as_raw();
    let fallback = PathBuf::from(format!("/tmp/ifunc-{user}"));
    if session.is_none() {
        use std::os::unix::fs::DirBuilderExt as _;
        let _ = std::fs::DirBuilder::new().mode(0o700).create(&fallback);
    }
    session.into_iter().chain([fallback]).collect()
}
