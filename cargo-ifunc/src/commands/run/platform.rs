//! The platforms of a run: which program is built for which, and how it is started.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use ifunc_build::Cpu;

use crate::cli::RunArgs;
use crate::error::Failure;
use crate::platforms::LibraryPlatforms;
use crate::workspace::Programs;

/// A platform; `None` is that of this machine.
type Triple<'a> = Option<&'a str>;

/// The platforms of target and source.
#[derive(Clone, Copy)]
pub(super) struct Platforms<'a> {
    target: Triple<'a>,
    source: Triple<'a>,
}

impl<'a> Platforms<'a> {
    pub(super) fn of(args: &'a RunArgs) -> Self {
        Self {
            target: args.target_on.as_deref(),
            source: args.source_on.as_deref(),
        }
    }

    /// The libraries that the programs open, with slices for both platforms.
    pub(super) fn libraries(self, cpus: &[Cpu]) -> Result<Vec<LibraryPlatforms>, Failure> {
        let triples: Vec<Option<String>> = self.all().map(|triple| triple.map(str::to_owned)).collect();
        crate::platforms::libraries(&triples, cpus)
    }

    /// Each of them once.
    pub(super) fn all(self) -> impl Iterator<Item = Triple<'a>> {
        let other = Some(self.source).filter(|source| *source != self.target);
        [self.target].into_iter().chain(other)
    }

    /// Whether a program is one that is built for this platform. Those that are neither target nor source belong to the source, which
    /// starts them.
    pub(super) fn has(self, platform: Triple<'_>, program: &str, programs: &Programs) -> bool {
        let is_target = program == programs.target;
        platform == if is_target { self.target } else { self.source }
    }

    /// The name of the folder for the programs of a package: programs for other platforms are in one of their own.
    pub(super) fn folder(self, package: &str) -> String {
        let named = |triple: Triple<'_>| triple.map_or(String::new(), |triple| format!("-{triple}"));
        match self.all().all(|triple| triple.is_none()) {
            true => package.to_owned(),
            false => format!(
                "{package}-target{}-source{}",
                named(self.target),
                named(self.source)
            ),
        }
    }

    pub(super) fn of_target(self) -> Triple<'a> {
        self.target
    }

    pub(super) fn of_source(self) -> Triple<'a> {
        self.source
    }
}

/// A command that starts a program of a platform: by the runner that cargo would use for it, if there is one.
pub(super) fn command(platform: Triple<'_>, program: &Path) -> Command {
    let runner = platform.and_then(|triple| env::var(variable(triple)).ok());
    let mut words = runner.iter().flat_map(|runner| runner.split_whitespace());
    let Some(first) = words.next() else {
        return Command::new(program);
    };
    let mut command = Command::new(OsString::from(first));
    command.args(words).arg(program);
    command
}

/// The variable that names a platform's runner.
fn variable(triple: &str) -> String {
    let triple = triple.replace(['-', '.'], "_").to_uppercase();
    format!("CARGO_TARGET_{triple}_RUNNER")
}

#[cfg(test)]
mod tests {
    use super::{Platforms, variable};
    use crate::workspace::Programs;

    #[test]
    fn a_run_builds_each_program_for_its_side() {
        let programs = Programs {
            target: "server".into(),
            source: Some("client".into()),
            both: None,
        };
        let arm = "aarch64-unknown-linux-gnu";
        let platforms = Platforms {
            target: Some(arm),
            source: None,
        };
        assert_eq!(platforms.all().collect::<Vec<_>>(), [Some(arm), None]);
        assert!(platforms.has(Some(arm), "server", &programs));
        assert!(!platforms.has(None, "server", &programs));
        assert!(platforms.has(None, "client", &programs));
        assert!(platforms.has(None, "verify", &programs));
        let here = Platforms {
            target: None,
            source: None,
        };
        assert_eq!(here.all().collect::<Vec<_>>(), [None]);
        assert_eq!(here.folder("hello"), "hello");
        assert_eq!(platforms.folder("hello"), format!("hello-target-{arm}-source"));
        assert_eq!(variable(arm), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
    }
}
