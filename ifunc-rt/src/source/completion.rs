//! Converts the target's reports to errors.

use std::sync::Arc;

use ifunc::payload::DecodeError;
use ifunc_abi::status::{Failure, FaultDetail, PanicDetail, Rejection, Status};
use ifunc_abi::symbols::REPLACE_EXPORT;
use ifunc_proto::caller::{Image, Report, SubmitError};
use ifunc_proto::calls::{Completion, Lost};

use super::error::Error;
use super::library::Library;
use crate::driver::wait::Ended;

/// The error of a completion that is not `Executed`.
pub(super) fn explain(library: &Library, completion: &Completion) -> Error {
    let (ifunc, about) = (library.name.clone(), library.about());
    let detail = String::from_utf8_lossy(completion.bytes()).into_owned();
    let detail = with_nodes(completion.status, detail);
    match completion.status {
        Status::Failed(why) => match PanicDetail::parse(completion.bytes()) {
            Some(panic) if why == Failure::Panic => Error::Panic {
                ifunc,
                message: panic.message.to_owned(),
                file: panic.file.to_owned(),
                line: panic.line,
                column: panic.column,
                place: library.describe(&panic.offsets().collect::<Vec<_>>()),
            },
            _ => Error::Failed {
                ifunc,
                why,
                detail: placed(library, completion).unwrap_or(detail),
            },
        },
        Status::Rejected(why) => {
            let stated = |ours: Option<&str>| ours.unwrap_or("(not stated)").to_owned();
            let signatures = |line: &str| {
                let (symbol, theirs) = line.split_once(' ').unwrap_or((line, ""));
                let ours = about.import(symbol).or_else(|| library.kind_of_import(symbol));
                explain_signature(symbol, &stated(ours), theirs)
            };
            let detail = match why {
                Rejection::TargetType => {
                    explain_target(&stated(about.entry(&library.name).target()), &detail)
                }
                Rejection::ImportSignature => detail.lines().map(signatures).collect(),
                Rejection::MissingImport => explain_missing(&detail, |symbol| about.import(symbol)),
                Rejection::Signature => detail + &library.explain_signature(),
                _ => detail,
            };
            Error::Rejected { ifunc, why, detail }
        }
        // Callers pass only completions that failed.
        Status::Executed => Error::Answer {
            ifunc,
            error: DecodeError::Invalid,
        },
    }
}

/// What a fault was, and in which function, by the names in the image's library.
fn placed(library: &Library, completion: &Completion) -> Option<String> {
    let fault = fault_of(completion.status, completion.bytes())?;
    let place = library.describe_fault(&fault.offsets().collect::<Vec<_>>(), fault.is_placed);
    Some(match place.is_empty() {
        true => fault.text.to_owned(),
        false => format!("{}: {place}", fault.text),
    })
}

/// The detail of a fault or a deadline.
fn fault_of(status: Status, detail: &[u8]) -> Option<FaultDetail<'_>> {
    match status {
        Status::Failed(Failure::Fault | Failure::Deadline) => FaultDetail::parse(detail),
        _ => None,
    }
}

/// A detail without its format.
fn text_of(status: Status, detail: &[u8]) -> String {
    match fault_of(status, detail) {
        Some(fault) => fault.text.to_owned(),
        None => String::from_utf8_lossy(detail).into_owned(),
    }
}

/// The error of an invocation that has no completion.
pub(super) fn explain_lost_invocation(library: &Library, lost: Lost) -> Error {
    match lost {
        Lost::Indeterminate => Error::Indeterminate {
            what: library.name.clone(),
            idempotent: Some(library.is_idempotent()),
        },
        lost => explain_lost(&library.name, lost),
    }
}

/// The error of a request that has no completion. `what` names the request.
pub(super) fn explain_lost(what: &str, lost: Lost) -> Error {
    let name = what.to_owned();
    match lost {
        Lost::NotSent { why } => Error::PeerGone { what: name, why },
        Lost::Indeterminate => indeterminate(name),
        Lost::PayloadTooLarge { len, limit } => Error::PayloadTooLarge {
            ifunc: name,
            len,
            limit,
        },
        Lost::AnswersTooLarge { len, limit } => Error::AnswersTooLarge {
            what: name,
            len,
            limit,
        },
        Lost::ImageTooLarge { len, limit } => Error::ImageTooLarge {
            ifunc: name,
            len,
            limit,
        },
        Lost::NoSlice { why } => Error::NoSlice { ifunc: name, why },
        Lost::AtNode { node, status, detail } => explain_at_node(name, node, status, &detail),
    }
}

/// The error of a request other than an invocation that may or may not have been carried out.
fn indeterminate(what: String) -> Error {
    Error::Indeterminate {
        what,
        idempotent: None,
    }
}

/// The detail of a status whose detail is the numbers of nodes.
fn with_nodes(status: Status, detail: String) -> String {
    match status {
        _ if detail.is_empty() => detail,
        Status::Failed(Failure::NodeLost) | Status::Rejected(Rejection::NodeLost | Rejection::NoNode) => {
            format!("node {detail}")
        }
        Status::Rejected(Rejection::UnknownNode) => {
            format!("node {detail}; help: add node {detail} to its group")
        }
        Status::Failed(Failure::Indeterminate) => format!("nodes that were lost meanwhile: {detail}"),
        _ => detail,
    }
}

/// The error of an invocation or a request that failed on this node, or on the target itself.
#[cold]
pub(super) fn explain_relayed(what: &str, node: Option<u32>, status: Status, detail: &[u8]) -> Error {
    match node {
        Some(node) => explain_at_node(what.to_owned(), node, status, detail),
        None => {
            let (ifunc, detail) = (what.to_owned(), text_of(status, detail));
            match status {
                Status::Failed(why) => Error::Failed { ifunc, why, detail },
                Status::Rejected(why) => Error::Rejected { ifunc, why, detail },
                Status::Executed => indeterminate(ifunc),
            }
        }
    }
}

/// The error of an invocation that failed on another node than the one that it was sent to.
#[cold]
fn explain_at_node(ifunc: String, node: u32, status: Status, detail: &[u8]) -> Error {
    let text = match PanicDetail::parse(detail) {
        Some(panic) if status == Status::Failed(Failure::Panic) => {
            format!("`{}` at {}:{}", panic.message, panic.file, panic.line)
        }
        _ => with_nodes(status, text_of(status, detail)),
    };
    let separator = if text.is_empty() { "" } else { ": " };
    let detail = format!("on node {node}{separator}{text}");
    match status {
        Status::Failed(why) => Error::Failed { ifunc, why, detail },
        Status::Rejected(why) => Error::Rejected { ifunc, why, detail },
        // Only failures are relayed so.
        Status::Executed => indeterminate(ifunc),
    }
}

/// The error of an invocation of `name` that cannot be sent; the token of one that was sent in part.
#[cold]
pub(super) fn explain_not_sent(name: &str, error: SubmitError<Arc<Library>, Error>) -> Result<u64, Error> {
    Err(match error {
        SubmitError::Unfinished(token) => return Ok(token),
        SubmitError::Encode(error) => error,
        SubmitError::Lost(lost) => explain_lost(name, lost),
        SubmitError::Earlier(report) => Error::Earlier(Box::new(explain_report(*report))),
        // The protocol handles a link that fails: the submission is blocked.
        SubmitError::Link(error) => Error::PeerGone {
            what: name.to_owned(),
            why: error.to_string(),
        },
    })
}

/// The error of an invocation that wanted no completion. For a panic this may read the ifunc's library, the first time.
pub(super) fn explain_report(report: Report<Arc<Library>>) -> Error {
    match report.outcome {
        Ok(completion) => explain(&report.image, &completion),
        Err(lost) => explain_lost_invocation(&report.image, *lost),
    }
}

/// The error of a wait for `what`.
pub(super) fn explain_wait(ended: Ended<Error>, what: &str) -> Error {
    let what = what.into();
    match ended {
        Ended::Failed(error) => error,
        Ended::TimedOut(waited) => Error::Timeout { what, waited },
        Ended::Gone(why) => Error::PeerGone { what, why },
        Ended::NoThread(error) => Error::NoThread { what, error },
        Ended::PolledHere => Error::Serving { what },
        Ended::Idle => unreachable!("only a wait for progress is idle"),
    }
}

/// Both texts, and what to do about an interface. The first line of `detail` describes the target's type, others help.
fn explain_target(image: &str, detail: &str) -> String {
    let (target, help) = detail.split_once('\n').unwrap_or((detail, ""));
    let mut text = format!("\n  the image:  {image}\n  the target: {target}");
    if !help.is_empty() {
        text.push_str(&format!("\n  {help}"));
    } else if let Some(interface) = image.strip_prefix("interface ") {
        text.push_str(&format!(
            "\n  help: put `#[ifunc::export]` on the target's `impl {interface} for` the type that it serves, and mention the crate \
             that holds it (`use the_crate as _;`); for a generic type, `Target::builder().export_interface::<dyn {interface}, \
             Type>()`"
        ));
    }
    text
}

/// Both types of an import, and what to declare if one is a variable and the other a function.
fn explain_signature(symbol: &str, image: &str, target: &str) -> String {
    let is_variable = |text: &str| text == VARIABLE || text.starts_with("static ");
    let is_function = |text: &str| text == FUNCTION || text.contains("fn ");
    let mut text = format!("\n  `{symbol}`\n    the image:  {image}\n    the target: {target}");
    let in_rust = match target {
        // The target does not state the type.
        VARIABLE | FUNCTION => String::new(),
        signature => format!("in Rust `{signature}` among the imports, "),
    };
    if is_function(image) && is_variable(target) {
        text.push_str(&format!(
            "\n    help: it is a variable: declare {in_rust}in C `IFUNC_IMPORT_DATA(type, {symbol});`, and do not call it"
        ));
    } else if is_variable(image) && is_function(target) {
        text.push_str(&format!(
            "\n    help: it is a function: declare {in_rust}in C `IFUNC_IMPORT(result, {symbol}, parameters);`, and call it"
        ));
    }
    text
}

/// What an image or a target states of an import whose type it does not know.
pub(super) const VARIABLE: &str = "a variable";
pub(super) const FUNCTION: &str = "a function";

/// Describes the symbols that the target does not provide, and how to provide them. `signature` is the text that the image was
/// built with.
fn explain_missing<'a>(detail: &str, signature: impl Fn(&str) -> Option<&'a str>) -> String {
    // A blank separates a symbol from the name of a set that has it; parentheses hold the number of omitted symbols.
    let lines: Vec<(&str, Option<&str>)> = detail
        .lines()
        .map(|line| match line.split_once(' ') {
            Some((symbol, set)) if !line.starts_with('(') => (symbol, Some(set)),
            _ => (line, None),
        })
        .collect();
    let listed = |symbols: &mut dyn Iterator<Item = &str>| {
        let quoted: Vec<String> = symbols.map(|symbol| format!("`{symbol}`")).collect();
        quoted.join(", ")
    };
    let mut text = listed(&mut lines.iter().map(|(symbol, _)| *symbol));
    // For a symbol whose type is known, exactly what to write.
    let typed = lines
        .iter()
        .filter_map(|(symbol, _)| Some((*symbol, signature(symbol)?)));
    let replaces = lines.iter().any(|(symbol, _)| *symbol == REPLACE_EXPORT);
    let typed: Vec<(&str, &str)> = typed.collect();
    for (symbol, signature) in &typed {
        text.push_str(&format!("\n  the image:  {signature}"));
        text.push_str(&format!("\n  help: {}", how_to_export(symbol, signature)));
    }
    let is_function = |(_, signature): &(&str, &str)| !is_method(signature) && !signature.contains("...");
    if typed.iter().any(is_function) {
        text.push_str(
            "\n  help: if a library crate of the target's program exports it already, the linker dropped it: mention that crate in \
             the program, `use the_crate as _;`",
        );
    }
    if replaces {
        text.push_str(
            "; help: the image replaces exports of the target, which `Target::builder().allow_remote_exports(true)` allows",
        );
    }
    if typed.is_empty() && !(replaces && lines.len() == 1) {
        text.push_str(
            "; help: `#[ifunc::export]` it on the target, or `Target::builder().allow(name, pointer)`",
        );
    }
    let mut sets: Vec<&str> = lines.iter().filter_map(|(_, set)| *set).collect();
    sets.sort_unstable();
    sets.dedup();
    for set in sets {
        let of_it = lines.iter().filter(|(_, of)| *of == Some(set));
        let symbols = listed(&mut of_it.map(|(symbol, _)| *symbol));
        text.push_str(&format!("; help: `allow_set(NamedSet::{set})` has {symbols}"));
    }
    if lines
        .iter()
        .any(|(symbol, set)| set.is_none() && *symbol != REPLACE_EXPORT)
    {
        text.push_str(
            "; help: what a shared library defines: build the ifunc with `--needed libz.so.1`, the library's soname, and \
             let the target `allow_library(\"libz.so.1\")`",
        );
    }
    text
}

/// Whether a signature is that of a method of an interface.
fn is_method(signature: &str) -> bool {
    signature.contains("(&self") || signature.contains("(&mut self")
}

/// What provides a symbol of this signature on the target.
fn how_to_export(symbol: &str, signature: &str) -> String {
    let allow = format!("`Target::builder().allow(\"{symbol}\", pointer)`");
    if is_method(signature) {
        let (interface, method) = symbol.rsplit_once('_').unwrap_or((symbol, symbol));
        return format!(
            "the target's version of the interface has no such method: build the target with the interface that has it \
             (`fn {method}` of `{interface}`), or the ifunc with the target's"
        );
    }
    if signature.starts_with("static ") {
        return format!("`#[ifunc::export] {signature} = ..;` on the target, or {allow}");
    }
    if signature.contains("...") {
        return format!("{allow}: a variadic function is written in C");
    }
    format!("`#[ifunc::export] {signature}` on the target, or {allow}")
}

#[cfg(test)]
mod tests {
    use super::{explain_missing, explain_signature, explain_target};

    #[test]
    fn a_variable_that_is_a_function_is_declared_as_what_it_is() {
        let text = explain_signature("level", "a function", "static level:u64");
        assert!(
            text.contains(
                "the image:  a function\n    the target: static level:u64\n    help: it is a variable"
            ) && text.contains("in Rust `static level:u64`")
                && text.contains("`IFUNC_IMPORT_DATA(type, level);`"),
            "{text}"
        );
        let text = explain_signature("log", "a variable", "unsafe fn log(u32)");
        assert!(
            text.contains("it is a function") && text.contains("`IFUNC_IMPORT(result, log, "),
            "{text}"
        );
        let text = explain_signature("stderr", "a function", "a variable");
        assert!(text.contains("help: it is a variable: declare in C "), "{text}");
        let text = explain_signature("f", "fn f(u32)", "fn f(u64)");
        assert!(!text.contains("help"), "{text}");
    }

    #[test]
    fn an_interface_that_the_target_lacks_is_named() {
        let text = explain_target("interface Kv", "opaque store/1; exports interface Log");
        assert!(
            text.contains("the image:  interface Kv\n  the target: opaque store/1; exports interface Log")
        );
        assert!(
            text.contains("#[ifunc::export]` on the target's `impl Kv for`"),
            "{text}"
        );
        let text = explain_target("interface Kv", "opaque a\nthis target exports `Kv` for `B`");
        assert!(text.ends_with("\n  this target exports `Kv` for `B`"), "{text}");
        assert!(!explain_target("u64", "u32").contains("help"));
    }

    #[test]
    fn a_missing_symbol_is_provided_by_what_it_is() {
        let help = |symbol: &str, signature: &'static str| explain_missing(symbol, |_| Some(signature));
        let text = help("HITS", "static HITS:atomic u64");
        assert!(
            text.contains("`#[ifunc::export] static HITS:atomic u64 = ..;`"),
            "{text}"
        );
        let text = help("lookup", "fn lookup(&str)->u64");
        assert!(text.contains("`#[ifunc::export] fn lookup(&str)->u64`"), "{text}");
        assert!(text.contains("`use the_crate as _;`"), "{text}");
        let text = help("Kv_put", "fn Kv_put(&mut self,&[u8])");
        assert!(text.contains("`fn put` of `Kv`"), "{text}");
        assert!(!text.contains("use the_crate"), "{text}");
        let text = help("printf", "unsafe fn printf(*const i8,...)->i32");
        assert!(text.contains("allow(\"printf\", pointer)"), "{text}");
    }

    #[test]
    fn missing_symbols_are_sorted_by_who_has_them() {
        let explain_missing = |detail| explain_missing(detail, |_| None);
        assert_eq!(
            explain_missing("f\nprintf Libc\nqsort Libc\n(and 3 more)"),
            "`f`, `printf`, `qsort`, `(and 3 more)`; help: `#[ifunc::export]` it on the target, or \
             `Target::builder().allow(name, pointer)`; help: `allow_set(NamedSet::Libc)` has `printf`, `qsort`; help: what a \
             shared library defines: build the ifunc with `--needed libz.so.1`, the library's soname, and let the target \
             `allow_library(\"libz.so.1\")`"
        );
        assert!(!explain_missing("f").contains("allow_set"));
        assert!(!explain_missing("qsort Libc").contains("--needed"));
    }
}
