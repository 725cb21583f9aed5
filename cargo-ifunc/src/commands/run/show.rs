//! What target and source write, line by line, each behind its name.

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

/// Which of its streams a program wrote to; it is shown on ours of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Prints a line, whatever bytes it is made of.
pub(super) fn line(side: Side, stream: Stream, line: &[u8]) {
    // Nobody is left to be told that the stream is closed.
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
