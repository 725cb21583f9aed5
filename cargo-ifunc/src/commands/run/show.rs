//! Prints the output of target and source line by line, prefixed with the program's name.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// One of the programs that a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Source,
    Both,
}

impl Side {
    /// Its binary's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Source => "source",
            Self::Both => "both",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Target => AnsiColor::Magenta.on_default().bold(),
            Self::Source => AnsiColor::Cyan.on_default().bold(),
            Self::Both => AnsiColor::Blue.on_default().bold(),
        }
    }
}

/// A standard stream of a program; its lines go to the same stream of this command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Prints a line of arbitrary bytes.
pub(super) fn line(side: Side, stream: Stream, line: &[u8]) {
    // An error means that the stream is closed; there is no way to report it.
    let _ = match stream {
        Stream::Out => print(&mut anstream::stdout().lock(), side, line),
        Stream::Err => print(&mut anstream::stderr().lock(), side, line),
    };
}

fn print(out: &mut impl Write, side: Side, line: &[u8]) -> io::Result<()> {
    let style = side.style();
    write!(out, "{style}{:>6} |{style:#} ", side.name())?;
    out.write_all(line)?;
    out.write_all(b"\n")?;
    out.flush()
}
