//! Messages for errors of a connection to a target.

use std::fmt::Display;

use ifunc_rt::{ConnectError, SourceError};

use crate::error::Failure;

/// The text of an error, each help on a line of its own. A target's text may contain anything: control characters are escaped.
pub(crate) fn text(error: &(impl Display + ?Sized)) -> String {
    let mut text = String::new();
    for character in error.to_string().chars() {
        match character.is_control() && character != '\n' {
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
