//! Shows samples: in place on a terminal, one after the other elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};

/// A line of text and its style.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

/// The area available to a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// Width of a line in characters.
    pub(super) columns: usize,
    /// Number of lines; `None`: unlimited.
    pub(super) lines: Option<usize>,
}

pub(super) struct Screen {
    /// Whether written lines can be overwritten.
    in_place: bool,
    colored: bool,
    /// Number of lines above the cursor.
    drawn: usize,
    /// Number of note lines among them.
    note_lines: usize,
    /// Columns and lines of the terminal at the last redraw.
    size: Option<(usize, usize)>,
}

const NOTE: Style = AnsiColor::Yellow.on_default().bold();

impl Screen {
    pub(super) fn new() -> Self {
        let out = io::stdout();
        // A dumb terminal, such as an editor's window, has no cursor to move.
        let dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        Self {
            in_place: out.is_terminal() && !dumb,
            colored: anstream::AutoStream::choice(&out) != ColorChoice::Never,
            drawn: 0,
            note_lines: 0,
            size: None,
        }
    }

    /// Columns and lines of the terminal, if it reports them.
    fn size(&self) -> Option<(usize, usize)> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let (columns, lines) = (size.ws_col.into(), size.ws_row.into());
        (self.in_place && columns > 0 && lines > 0).then_some((columns, lines))
    }

    pub(super) fn area(&self) -> Area {
        match self.size() {
            // Reserves one line for the cursor and one for a note.
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

    /// Shows a sample in place of the previous one.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let Some(size) = self.size() else {
            let mut text = String::new();
            for line in lines {
                self.add(&mut text, line.style, &line.text, "");
            }
            text.push('\n');
            return written(&text);
        };
        // Lines that have scrolled away cannot be overwritten.
        let shown = &lines[..lines.len().min(size.1.saturating_sub(2))];
        let mut text = self.top(size);
        for line in shown {
            // A wrapped line would take two lines.
            self.add(&mut text, line.style, &clipped(&line.text, size.0), ERASE_LINE);
        }
        text.push_str(ERASE_BELOW);
        (self.drawn, self.note_lines) = (shown.len(), 0);
        written(&text)
    }

    /// Shows a note below the last sample, in place of the previous note. Returns whether it did: it needs a
    /// terminal.
    pub(super) fn note(&mut self, what: &str) -> io::Result<bool> {
        let Some(size) = self.size() else {
            return Ok(false);
        };
        let mut text = match self.size == Some(size) {
            true => up(self.note_lines),
            // A resize has wrapped the old lines differently.
            false => self.top(size) + ERASE_BELOW,
        };
        self.add(&mut text, NOTE, &clipped(what, size.0), ERASE_LINE);
        text.push_str(ERASE_BELOW);
        self.drawn += 1 - self.note_lines;
        self.note_lines = 1;
        written(&text).map(|()| true)
    }

    /// Moves the cursor to the start of the previous sample.
    fn top(&mut self, size: (usize, usize)) -> String {
        let old_size = self.size.replace(size);
        if old_size.is_none_or(|old_size| old_size == size) {
            return up(self.drawn);
        }
        // A resize has moved the lines to unknown positions.
        (self.drawn, self.note_lines) = (0, 0);
        "\x1b[H\x1b[2J".into()
    }

    fn add(&self, to: &mut String, style: Style, text: &str, end: &str) {
        // Writing to a string cannot fail.
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

/// Writes everything in one call, so that no partial sample is visible.
fn written(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Truncates `text` to `columns`; every shown character takes one column.
pub(super) fn clipped(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    short
}
