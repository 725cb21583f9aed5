//! The options of an example: `--name value`, in any order.

use std::io::{Write, stdout};
use std::str::FromStr;

use crate::Failure;

/// The arguments that were not taken yet.
#[derive(Debug)]
pub struct Args(Vec<String>);

impl Args {
    /// The arguments of this process.
    #[must_use]
    pub fn from_env() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Takes `--name VALUE`.
    ///
    /// # Errors
    /// The value is missing, or of another type.
    pub fn option<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let Some(at) = self.0.iter().position(|arg| arg == name) else {
            return Ok(None);
        };
        if at + 1 == self.0.len() {
            return Err(format!("`{name}` has no value").into());
        }
        let value = self.0.remove(at + 1);
        self.0.remove(at);
        match value.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(format!("`{name} {value}`: a value of another kind is expected").into()),
        }
    }

    /// Takes `--name NUMBER`, a number between `least` and `most`.
    ///
    /// # Errors
    /// The value is missing, no number, or out of range.
    pub fn number(&mut self, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Failure> {
        let number = self.option(name)?.unwrap_or(default);
        if !(least..=most).contains(&number) {
            return Err(format!("`{name} {number}`: the least is {least}, the most is {most}").into());
        }
        Ok(number)
    }

    /// Takes the first argument that is no option.
    pub fn positional(&mut self) -> Option<String> {
        let at = self.0.iter().position(|arg| !arg.starts_with('-'))?;
        Some(self.0.remove(at))
    }

    /// Takes `--name`, and returns whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|arg| arg == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Prints `help` and ends the process, if `--help` is among the arguments.
    pub fn help(&mut self, help: &str) {
        if self.flag("--help") || self.flag("-h") {
            // Locked until the end: another thread of this process may have the same arguments.
            let mut out = stdout().lock();
            let _ = writeln!(out, "{help}");
            std::process::exit(0);
        }
    }

    /// Ends the parsing. With `--help`, prints `usage` and ends the process.
    ///
    /// # Errors
    /// An argument was not taken; `usage` follows.
    pub fn end(mut self, usage: &str) -> Result<(), Failure> {
        self.help(usage);
        match self.0.first() {
            None => Ok(()),
            Some(unknown) => Err(format!("unknown argument `{unknown}`\nhelp: {usage}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Args {
        Args(text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let mut given = args("graph.txt --servers 3 --json out");
        assert_eq!(given.number("--servers", 4, 1, 64).unwrap(), 3);
        assert_eq!(given.option::<String>("--json").unwrap().as_deref(), Some("out"));
        assert_eq!(given.number("--depth", 7, 1, 64).unwrap(), 7);
        assert_eq!(given.positional().as_deref(), Some("graph.txt"));
        given.end("usage").unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |result: Result<u64, Failure>| result.unwrap_err().to_string();
        assert!(error(args("--servers").number("--servers", 4, 1, 64)).contains("no value"));
        assert!(error(args("--servers x").number("--servers", 4, 1, 64)).contains("`--servers x`"));
        assert!(error(args("--servers 65").number("--servers", 4, 1, 64)).contains("the most is 64"));
        let unknown = args("--sevrers 3")
            .end("cargo ifunc run")
            .unwrap_err()
            .to_string();
        assert!(unknown.contains("`--sevrers`") && unknown.contains("help: cargo ifunc run"));
    }
}
