//! The variables that cargo sets for a build script, and their removal for the inner cargo.

use std::path::PathBuf;
use std::process::Command;

use super::ScriptError;

/// The surroundings of this build script.
#[derive(Debug)]
pub(super) struct Environment {
    /// Name of the package whose script this is.
    pub(super) package: String,
    /// Its manifest.
    pub(super) manifest: PathBuf,
    /// The builder's folder in `OUT_DIR`.
    pub(super) out: PathBuf,
    /// The triple that the program is compiled for, if that is not this machine's.
    pub(super) triple: Option<String>,
}

impl Environment {
    pub(super) fn read() -> Result<Self, ScriptError> {
        let variable = |name| std::env::var_os(name).ok_or(ScriptError::NotAScript { variable: name });
        let triple = std::env::var("TARGET").ok();
        let own = std::env::var("HOST").ok();
        Ok(Self {
            triple: triple.filter(|triple| own.is_some_and(|own| own != *triple)),
            package: variable("CARGO_PKG_NAME")?.to_string_lossy().into_owned(),
            manifest: PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("Cargo.toml"),
            out: PathBuf::from(variable("OUT_DIR")?).join("ifunc"),
        })
    }
}

/// Removes from a command's environment the variables of this build script, which build scripts and macros of the
/// ifunc's crates would take for their own, and every compiler wrapper.
pub(crate) fn remove_script_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_set_for_scripts) {
            command.env_remove(name);
        }
    }
    // rust-analyzer's wrapper replaces the compiler while it collects build scripts.
    if std::env::var_os("RA_RUSTC_WRAPPER").is_some() {
        command.env_remove("RUSTC_WRAPPER");
    }
}

/// Whether cargo sets a variable for one build script or one crate. `CARGO_CFG_TARGET_*` is not in the list: cargo sets
/// all of them again.
pub(super) fn is_set_for_scripts(name: &str) -> bool {
    const EXACT: [&str; 16] = [
        "CARGO_CFG_DEBUG_ASSERTIONS",
        "CARGO_CFG_FEATURE",
        "CARGO_CFG_OVERFLOW_CHECKS",
        "CARGO_CFG_PANIC",
        "CARGO_CRATE_NAME",
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_LINKS",
        "CARGO_MANIFEST_PATH",
        "CARGO_PRIMARY_PACKAGE",
        "DEBUG",
        "HOST",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTC_LINKER",
        "TARGET",
    ];
    const PREFIXES: [&str; 4] = ["CARGO_FEATURE_", "CARGO_PKG_", "CARGO_BIN_", "DEP_"];
    EXACT.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_set_for_scripts;

    #[test]
    fn what_the_user_set_stays() {
        for kept in [
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "CARGO_CFG_TARGET_ARCH",
            "RUSTUP_TOOLCHAIN",
            "CARGO_MAKEFLAGS",
            "RUSTC_WRAPPER",
            "CC",
            "PATH",
        ] {
            assert!(!is_set_for_scripts(kept), "{kept}");
        }
        for forgotten in [
            "CARGO_FEATURE_STD",
            "CARGO_PKG_NAME",
            "DEP_Z_ROOT",
            "OUT_DIR",
            "PROFILE",
        ] {
            assert!(is_set_for_scripts(forgotten), "{forgotten}");
        }
    }
}
