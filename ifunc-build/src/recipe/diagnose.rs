//! What to do about the errors that ifunc authors meet: rustc speaks of lang items, the author of a dependency.

use cargo_metadata::diagnostic::Diagnostic;

use super::workspace::Package;

/// Collects what the compiler says.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    /// Errors with their notes, as text.
    errors: Vec<String>,
}

impl Diagnosis {
    /// Whether anything is wrong.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// A message of the compiler.
    pub(super) fn compiler(&mut self, message: &Diagnostic) {
        use cargo_metadata::diagnostic::DiagnosticLevel::{Error, Ice};
        if matches!(message.level, Error | Ice) {
            let code = message.code.as_ref().map_or("", |code| &code.code);
            let notes = message
                .children
                .iter()
                .map(|child| format!("\n{}", child.message));
            self.errors
                .push(format!("{code} {}{}", message.message, notes.collect::<String>()));
        }
    }

    /// Whether the compiler asks for the panic handler, which `ifunc` brings where something of it is used.
    pub(super) fn is_about_the_panic_handler(message: &Diagnostic) -> bool {
        message.message.contains("`#[panic_handler]` function required")
    }

    /// Whether that is all that is wrong. Cargo's last line only repeats it.
    pub(super) fn lacks_only_the_panic_handler(&self) -> bool {
        let (about_it, others): (Vec<_>, Vec<_>) = self
            .errors
            .iter()
            .partition(|error| error.contains("`#[panic_handler]` function required"));
        let follows = |error: &&String| {
            ["could not compile", "aborting due to"]
                .iter()
                .any(|what| error.contains(what))
        };
        !about_it.is_empty() && others.iter().all(follows)
    }

    /// A line of cargo.
    pub(super) fn cargo(&mut self, line: &str) {
        if line.trim_start().starts_with("error") {
            self.errors.push(line.to_owned());
        }
    }

    /// What to do, as far as we know it.
    pub(super) fn helps(&self, package: &Package) -> Vec<String> {
        let mut helps: Vec<String> = self
            .errors
            .iter()
            .filter_map(|error| help(error, &package.name, &package.crate_name))
            .collect();
        helps.sort();
        helps.dedup();
        helps
    }
}

/// The text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

fn help(error: &str, package: &str, crate_name: &str) -> Option<String> {
    if error.contains("lang item") && error.contains("panic_impl") {
        let culprit = between(error, "first defined in crate `std` (which `", "` depends on)");
        return Some(match culprit {
            Some(culprit) if culprit == crate_name => {
                format!(
                    "write `#![no_std]` at the top of the library of `{package}`: what travels has no std"
                )
            }
            Some(culprit) => format!(
                "`{culprit}` uses std, which cannot travel: switch its std feature off (`default-features = false`), or leave it out of `{package}`"
            ),
            None if error.contains("`std`") => {
                format!("`{package}` or a crate that it depends on uses std: write `#![no_std]`")
            }
            None => format!(
                "`{package}` has a `#[panic_handler]` of its own: remove it, `ifunc` brings one (choose what it tells by `[package.metadata.ifunc] panic`)"
            ),
        });
    }
    if error.contains("no global memory allocator found") {
        return Some(format!(
            "`{package}` uses alloc: switch on the feature that brings the target's allocator, `ifunc = {{ .., features = [\"alloc\"] }}`"
        ));
    }
    if error.contains("unwinding panics are not supported without std") {
        return Some(
            "images are built with panic=abort: does a build script or a wrapper change `-Cpanic`?".into(),
        );
    }
    if let Some(symbol) = between(error, "symbol `", "` is already defined")
        && let Some(name) = symbol.strip_suffix(ifunc_abi::symbols::MAIN_SUFFIX)
    {
        return Some(format!(
            "two ifuncs of `{package}` are named `{name}`: write `#[ifunc(name = \"{name}_2\")]` on one of them"
        ));
    }
    if error.contains("E0463") || error.contains("may not be installed") {
        return Some(
            "a crate or the target's standard library is missing: `rustup target add` installs targets"
                .into(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::help;

    #[test]
    fn errors_name_the_culprit() {
        let says = |error: &str, what: &str| {
            let help = help(error, "my-ifuncs", "my_ifuncs").unwrap();
            assert!(help.contains(what), "{help}");
        };
        let twice = "E0152 duplicate lang item in crate `ifunc`: `panic_impl`\nthe lang item is first defined in crate `std` (which `NAME` depends on)";
        says(&twice.replace("NAME", "my_ifuncs"), "#![no_std]");
        says(&twice.replace("NAME", "regex"), "`regex` uses std");
        says(
            "E0152 found duplicate lang item `panic_impl`\nthe lang item is first defined in crate `ifunc` (which `my_ifuncs` depends on)",
            "#[panic_handler]",
        );
        says(
            " no global memory allocator found but one is required; link to std",
            "features = [\"alloc\"]",
        );
        says(" symbol `mine_main` is already defined", "named `mine`");
        assert_eq!(help(" mismatched types", "a", "a"), None);
    }
}
