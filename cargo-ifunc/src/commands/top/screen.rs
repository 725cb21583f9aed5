//! Where a look is shown: in place on a terminal, one behind the other elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};

/// A line: its words, and how they look.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

/// The room that a look has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// Characters of a line.
    pub(super) columns: usize,
    /// Lines of all of it; `None`: as many as there are.
    pub(super) lines: Option<usize>,
}

pub(super) struct Screen {
    /// Whether lines that were written can be written anew.
    in_place: bool,
    colored: bool,
    /// Lines that stand above the cursor.
    drawn: usize,
    /// Of them, those of a note.
    note_lines: usize,
    /// Columns and lines of the terminal, when it was last drawn on.
    size: Option<(usize, usize)>,
}

const NOTE: Style = AnsiColor::Yellow.on_default().bold();

impl Screen {
    pub(super) fn new() -> Self {
        let out = io::stdout();
        // Such as an editor's window: it has no cursor to move.
        let dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        Self {
            in_place: out.is_terminal() && !dumb,
            colored: anstream::AutoStream::choice(&out) != ColorChoice::Never,
            drawn: 0,
            note_lines: 0,
            size: None,
        }
    }

    /// Columns and lines, of a terminal that says how large it is.
    fn size(&self) -> Option<(usize, usize)> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let (columns, lines) = (size.ws_col.into(), size.ws_row.into());
        (self.in_place && columns > 0 && lines > 0).then_some((columns, lines))
    }

    pub(super) fn area(&self) -> Area {
        match self.size() {
            // The cursor has a line of its own, and so has a note.
            Some((columns, lines)) => Area {
                columns,
                lines: Some(lines.saturating_sub(2)),
            },
            None => Area {
                columns: usize::MAX,
                lines: None,
            },
        }
    }

    /// Shows a look, in the place of the one before.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let Some(size) = self.size() else {
            let mut text = String::new();
            for line in lines {
                self.add(&mut text, line.style, &line.text, "");
            }
            text.push('\n');
            return written(&text);
        };
        // What has scrolled away cannot be drawn over.
        let shown = &lines[..lines.len().min(size.1.saturating_sub(2))];
        let mut text = self.top(size);
        for line in shown {
            // One that wraps would be two to go up.
            self.add(&mut text, line.style, &clipped(&line.text, size.0), ERASE_LINE);
        }
        text.push_str(ERASE_BELOW);
        (self.drawn, self.note_lines) = (shown.len(), 0);
        written(&text)
    }

    /// Says something below the last look, in the place of what was said there before. Whether it could: elsewhere than on
    /// a terminal it cannot.
    pub(super) fn note(&mut self, what: &str) -> io::Result<bool> {
        let Some(size) = self.size() else {
            return Ok(false);
        };
        let mut text = match self.size == Some(size) {
            true => up(self.note_lines),
            // What stood there has been wrapped in other places.
            false => self.top(size) + ERASE_BELOW,
        };
        self.add(&mut text, NOTE, &clipped(what, size.0), ERASE_LINE);
        text.push_str(ERASE_BELOW);
        self.drawn += 1 - self.note_lines;
        self.note_lines = 1;
        written(&text).map(|()| true)
    }

    /// Goes to where the look before begins.
    fn top(&mut self, size: (usize, usize)) -> String {
        let known = self.size.replace(size);
        if known.is_none_or(|known| known == size) {
            return up(self.drawn);
        }
        // The terminal has broken the lines anew: nobody knows where they are.
        (self.drawn, self.note_lines) = (0, 0);
        "\x1b[H\x1b[2J".into()
    }

    fn add(&self, to: &mut String, style: Style, text: &str, end: &str) {
        // To a string nothing fails.
        let _ = match self.colored {
            true => writeln!(to, "{style}{text}{style:#}{end}"),
            false => writeln!(to, "{text}{end}"),
        };
    }
}

const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

fn up(lines: usize) -> String {
    match lines {
        0 => "\r".into(),
        _ => format!("\x1b[{lines}A\r"),
    }
}

/// All at once: nobody sees half of it.
fn written(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What fits into so many columns: every character that is shown takes one.
pub(super) fn clipped(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    short
}
