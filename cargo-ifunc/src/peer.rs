//! Messages for errors of a connection to a target.

use std::fmt::Display;

use ifunc_rt::{ConnectError, SourceError};

use crate::error::Failure;

/// The text of an error, each help on a line of its own. A target's text may contain anything: control characters are escaped,
/// but the ends of lines, which errors of this side have, too.
pub(crate) fn text(error: &(impl Display + ?Sized)) -> String {
    escaped(error, |character| character.is_control() && character != '\n')
}

/// As [`text`], of an error that has no ends of lines but the target's, which are escaped.
pub(crate) fn line(error: &(impl Display + ?Sized)) -> String {
    escaped(error, char::is_control)
}

fn escaped(error: &(impl Display + ?Sized), is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::new();
    for character in error.to_string().chars() {
        match is_escaped(character) {
            true => text.extend(character.escape_default()),
            false => text.push(character),
        }
    }
    text.replace("; help: ", "\nhelp: ")
}

/// The message for a failed connection.
pub(crate) fn unreachable(error: &SourceError) -> Failure {
    let message = text(error);
    Failure::Message(match error {
        SourceError::Address(_) | SourceError::Connect(ConnectError::NobodyListens { .. }) => {
            format!(
                "{message}\nhelp: `Target::address` and the target's line `ifunc: ready ADDRESS` state its address"
            )
        }
        _ => message,
    })
}

#[cfg(test)]
mod tests {
    use super::{line, text};

    #[test]
    fn what_a_target_says_does_not_reach_the_terminal_as_it_is() {
        let said = "a\x1b[2Jb\nc; help: d";
        assert_eq!(text(said), "a\\u{1b}[2Jb\nc\nhelp: d");
        assert_eq!(line(said), "a\\u{1b}[2Jb\\nc\nhelp: d");
    }
}
