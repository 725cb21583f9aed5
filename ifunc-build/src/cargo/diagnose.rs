//! Remedies for errors of rustc that ifunc authors meet: rustc names lang items, the remedy names a dependency.

use cargo_metadata::diagnostic::Diagnostic;

use super::chain::DependencyGraph;
use super::command::Job;
use super::workspace::Package;

/// The error of link-time optimisation for two functions of one name.
const DEFINED_TWICE: &str = "symbol multiply defined";

/// Collects the compiler's errors.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    /// Errors with their notes, as text.
    errors: Vec<String>,
}

impl Diagnosis {
    /// Whether there is an error.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// A message of the compiler.
    pub(super) fn compiler(&mut self, message: &Diagnostic) {
        use cargo_metadata::diagnostic::DiagnosticLevel::{Error, Ice};
        // The error that follows this warning only states that something cannot be loaded.
        let twice = message.message.contains(DEFINED_TWICE);
        if matches!(message.level, Error | Ice) || twice {
            let code = message.code.as_ref().map_or("", |code| &code.code);
            let notes = message
                .children
                .iter()
                .map(|child| format!("\n{}", child.message));
            self.errors
                .push(format!("{code} {}{}", message.message, notes.collect::<String>()));
        }
    }

    /// Whether the compiler misses a panic handler, which `ifunc` provides where the package uses it.
    pub(super) fn is_about_the_panic_handler(message: &Diagnostic) -> bool {
        message.message.contains("`#[panic_handler]` function required")
    }

    /// Whether that is the only error. Cargo's last line only repeats it.
    pub(super) fn misses_only_the_panic_handler(&self) -> bool {
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

    /// The remedies, as far as they are known.
    pub(super) fn helps(&self, job: &Job<'_>, package: &Package) -> Vec<String> {
        // Cargo runs only for remedies that name a chain of crates.
        let has_chain = |error: &String| {
            ["lang item", "global allocator"]
                .iter()
                .any(|what| error.contains(what))
        };
        let graph = match self.errors.iter().any(has_chain) {
            true => DependencyGraph::read(job, package),
            false => None,
        };
        let mut helps = Vec::new();
        for error in &self.errors {
            let about_triple = about_triple(error, job.workspace.triple.name());
            for help in about_triple.into_iter().chain(help(
                error,
                &package.name,
                &package.crate_name,
                graph.as_ref(),
            )) {
                if !helps.contains(&help) {
                    helps.push(help);
                }
            }
        }
        helps
    }
}

/// The libraries of the triple are missing, or rustc does not know it.
fn about_triple(error: &str, triple: &str) -> Option<String> {
    let of_crates = ["core", "alloc", "std"]
        .iter()
        .any(|name| error.contains(&format!("can't find crate for `{name}`")));
    (of_crates || error.contains("may not be installed")).then(|| {
        format!(
            "the compiler has no `core` for `{triple}`: `rustup target add {triple}` installs it; or name a compiler that has it in the environment variable `RUSTC`"
        )
    })
}

/// The text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

fn help(error: &str, package: &str, crate_name: &str, graph: Option<&DependencyGraph>) -> Vec<String> {
    if error.contains("lang item") && error.contains("panic_impl") {
        return about_panic_handlers(error, package, crate_name, graph);
    }
    about_other_errors(error, package, graph).into_iter().collect()
}

/// Two panic handlers: `ifunc`'s and std's, or one that the package defines.
fn about_panic_handlers(
    error: &str,
    package: &str,
    crate_name: &str,
    graph: Option<&DependencyGraph>,
) -> Vec<String> {
    if let Some(culprit) = between(error, "crate `std` (which `", "` depends on)") {
        if culprit == crate_name {
            return vec![format!(
                "write `#![no_std]` at the top of the library of `{package}`: what travels has no std"
            )];
        }
        let known = graph.and_then(|graph| graph.about_std(culprit));
        return known.unwrap_or_else(|| {
            vec![format!(
                "`{culprit}` uses std, which cannot travel: switch its std feature off (`default-features = false`), or leave it out of `{package}`"
            )]
        });
    }
    if error.contains("crate `std`") {
        return vec![format!(
            "`{package}` or a crate that it depends on uses std: write `#![no_std]`"
        )];
    }
    let crates = [
        between(error, "lang item in crate `", "`"),
        between(error, "first defined in crate `", "`"),
    ];
    let others = crates.into_iter().flatten();
    let of_another = others
        .filter(|name| *name != "ifunc" && *name != crate_name)
        .find_map(|name| {
            let chain = graph?.chain(name)?;
            Some(format!(
                "{chain}: `{name}` has a `#[panic_handler]` of its own: leave it out, `ifunc` brings one"
            ))
        });
    vec![of_another.unwrap_or_else(|| {
        format!(
            "`{package}` has a `#[panic_handler]` of its own: remove it, `ifunc` brings one (choose what it reports by `[package.metadata.ifunc] panic`)"
        )
    })]
}

fn about_other_errors(error: &str, package: &str, graph: Option<&DependencyGraph>) -> Option<String> {
    if let Some((first, second)) = error.split_once(" conflicts with global allocator in: ") {
        let (_, first) = first.rsplit_once(" in ")?;
        let second = second.lines().next()?.trim();
        let other = [first, second]
            .into_iter()
            .find(|name| !["ifunc", "this crate"].contains(name));
        let of_another = other.map(|name| {
            let chain = graph.and_then(|graph| graph.chain(name));
            let chain = chain.map_or_else(String::new, |chain| format!("{chain}: "));
            format!("{chain}`{name}` has a `#[global_allocator]` of its own: leave it out, `ifunc` brings the target's")
        });
        return Some(of_another.unwrap_or_else(|| {
            format!(
                "`{package}` has a `#[global_allocator]` of its own: remove it, `ifunc` brings the target's"
            )
        }));
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
        && let Some(name) = ifunc_of(symbol)
    {
        return Some(format!(
            "two ifuncs of `{package}` are named `{name}`: write `#[ifunc(name = \"{name}_2\")]` on one of them"
        ));
    }
    if error.contains(DEFINED_TWICE)
        && let Some(symbol) = between(error, "globals named '", "'")
        && let Some(name) = ifunc_of(symbol)
    {
        return Some(format!(
            "two ifuncs are named `{name}`, one in `{package}` and one in a crate that it is built with: write `#[ifunc(name = \"{name}_2\")]` on one of them"
        ));
    }
    None
}

/// The ifunc that a symbol of an image build belongs to. The compiler names the first of several that are defined twice.
fn ifunc_of(symbol: &str) -> Option<&str> {
    symbol
        .strip_suffix(ifunc_abi::symbols::MAIN_SUFFIX)
        .or_else(|| symbol.strip_prefix(ifunc_abi::symbols::BATCH_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::help;

    #[test]
    fn errors_name_the_culprit() {
        let says = |error: &str, what: &str| {
            let helps = help(error, "my-ifuncs", "my_ifuncs", None);
            assert!(helps.len() == 1 && helps[0].contains(what), "{helps:?}");
        };
        let twice = "E0152 duplicate lang item in crate `ifunc`: `panic_impl`\nthe lang item is first defined in crate `std` (which `NAME` depends on)";
        says(&twice.replace("NAME", "my_ifuncs"), "#![no_std]");
        says(&twice.replace("NAME", "regex"), "`regex` uses std");
        // The names of the two decide which one the compiler meets first.
        says(
            "E0152 duplicate lang item in crate `std` (which `regex` depends on): `panic_impl`\nthe lang item is first defined in crate `ifunc` (which `my_ifuncs` depends on)",
            "`regex` uses std",
        );
        says(
            "E0152 found duplicate lang item `panic_impl`\nthe lang item is first defined in crate `ifunc` (which `my_ifuncs` depends on)",
            "#[panic_handler]",
        );
        says(
            " no global memory allocator found but one is required; link to std",
            "features = [\"alloc\"]",
        );
        let allocators = " the `#[global_allocator]` in FIRST conflicts with global allocator in: SECOND";
        let allocators =
            |first: &str, second: &str| allocators.replace("FIRST", first).replace("SECOND", second);
        says(
            &allocators("this crate", "ifunc"),
            "`my-ifuncs` has a `#[global_allocator]`",
        );
        says(
            &allocators("ifunc", "arena"),
            "`arena` has a `#[global_allocator]`",
        );
        says(
            &allocators("arena", "ifunc"),
            "`arena` has a `#[global_allocator]`",
        );
        for symbol in ["mine_main", "__ifunc_batch_mine"] {
            says(&format!(" symbol `{symbol}` is already defined"), "named `mine`");
        }
        says(
            " Linking globals named 'mine_main': symbol multiply defined!",
            "two ifuncs are named `mine`",
        );
        assert!(help(" mismatched types", "a", "a", None).is_empty());
    }
}
