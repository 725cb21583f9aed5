//! Where a look is shown: in place on a terminal, one behind the other elsewhere.

use std::io::{self, IsTerminal, Write};

use anstyle::Style;

/// A line: its words, and how they look.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

pub(super) struct Screen {
    terminal: bool,
    /// Lines of the look before, which stand above the cursor.
    drawn: usize,
}

/// Lines of each table where nobody says how high the terminal is.
const USUAL_LINES: usize = 20;
/// Lines that are not of the tables' rows: the head, two rows of names, blanks, the cursor's own.
const OTHER_LINES: usize = 10;

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            drawn: 0,
        }
    }

    fn size(&self) -> Option<(usize, usize)> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let (columns, rows) = (size.ws_col.into(), size.ws_row.into());
        (self.terminal && columns > 0 && rows > 0).then_some((columns, rows))
    }

    /// Most rows of each of the two tables.
    pub(super) fn rows(&self, asked: Option<usize>) -> usize {
        let fits = |(_, rows): (usize, usize)| (rows.saturating_sub(OTHER_LINES) / 2).max(1);
        asked.unwrap_or_else(|| self.size().map_or(USUAL_LINES, fits))
    }

    /// Shows a look, in the place of the one before.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let size = self.size();
        let mut out = anstream::stdout().lock();
        if let Some((columns, rows)) = size {
            // What has scrolled away cannot be drawn over.
            let shown = &lines[..lines.len().min(rows.saturating_sub(1))];
            if self.drawn > 0 {
                write!(out, "\x1b[{}A\r\x1b[J", self.drawn)?;
            }
            for line in shown {
                // One that wraps would be two to go up.
                print(&mut out, line.style, clipped(&line.text, columns))?;
            }
            self.drawn = shown.len();
        } else {
            for line in lines {
                print(&mut out, line.style, &line.text)?;
            }
            writeln!(out)?;
        }
        out.flush()
    }
}

fn print(out: &mut impl Write, style: Style, text: &str) -> io::Result<()> {
    writeln!(out, "{style}{text}{style:#}")
}

/// What fits into so many columns: every character that is shown takes one.
fn clipped(text: &str, columns: usize) -> &str {
    let end = text.char_indices().nth(columns).map_or(text.len(), |(at, _)| at);
    &text[..end]
}
