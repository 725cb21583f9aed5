//! Aligned columns, for terminals and for Markdown.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

/// The emphasis of a cell, on terminals with colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Emphasis {
    #[default]
    Plain,
    /// A goal that was met.
    Good,
    /// A goal that was missed.
    Bad,
    /// Less important.
    Dim,
}

impl Emphasis {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Bad => AnsiColor::Yellow.on_default().bold(),
            Self::Dim => Style::new().dimmed(),
        }
    }
}

/// The alignment of a column: text to the left, numbers to the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    emphasis: Emphasis,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, emphasis: Emphasis) -> Self {
        let text = text.into();
        Self { text, emphasis }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Emphasis::Plain)
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Side)]) -> Self {
        let columns = columns.to_vec();
        let rows = Vec::new();
        Self { columns, rows }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Removes columns without any text.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let used: Vec<bool> = (0..self.columns.len())
            .map(|at| self.rows.iter().any(|row| !row[at].text.is_empty()))
            .collect();
        let mut keep = used.iter();
        self.columns.retain(|_| keep.next() == Some(&true));
        for row in &mut self.rows {
            let mut keep = used.iter();
            row.retain(|_| keep.next() == Some(&true));
        }
        self
    }

    /// Width of each column: that of its name or its longest cell, and at least three for Markdown.
    fn widths(&self) -> Vec<usize> {
        let longest = |at: usize| {
            self.rows
                .iter()
                .map(move |row| row[at].text.chars().count())
                .max()
        };
        self.columns
            .iter()
            .enumerate()
            .map(|(at, (name, _))| name.chars().count().max(longest(at).unwrap_or(0)).max(3))
            .collect()
    }

    /// The table with colours, which `anstream` removes where they are not supported.
    pub(crate) fn terminal(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let head = self
            .columns
            .iter()
            .map(|(name, _)| Cell::new(*name, Emphasis::Dim));
        for cells in std::iter::once(head.collect()).chain(self.rows.iter().cloned()) {
            let mut line = String::new();
            for ((cell, width), (_, side)) in cells.iter().zip(&widths).zip(&self.columns) {
                let style = cell.emphasis.style();
                let text = aligned(&cell.text, *width, *side);
                let _ = write!(line, "  {style}{text}{style:#}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The table in Markdown, aligned in its source too.
    pub(crate) fn markdown(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        let columns = || self.columns.iter().zip(&widths);
        line(
            columns()
                .map(|((name, side), width)| aligned(name, *width, *side))
                .collect(),
        );
        line(
            columns()
                .map(|((_, side), width)| match side {
                    Side::Left => "-".repeat(*width),
                    Side::Right => format!("{}:", "-".repeat(*width - 1)),
                })
                .collect(),
        );
        for row in &self.rows {
            line(
                columns()
                    .zip(row)
                    .map(|(((_, side), width), cell)| aligned(&cell.text, *width, *side))
                    .collect(),
            );
        }
        text
    }
}

fn aligned(text: &str, width: usize, side: Side) -> String {
    match side {
        Side::Left => format!("{text:width$}"),
        Side::Right => format!("{text:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_removed() {
        let mut table = Table::new(&[("what", Side::Left), ("none", Side::Left), ("ns", Side::Right)]);
        table.row(vec!["µs".into(), "".into(), Cell::new("7", Emphasis::Good)]);
        table.row(vec!["longer".into(), "".into(), "1234".into()]);
        let table = table.without_empty_columns();
        assert_eq!(
            table.markdown(),
            "| what   |   ns |\n| ------ | ---: |\n| µs     |    7 |\n| longer | 1234 |\n"
        );
        let plain = anstream::adapter::strip_str(&table.terminal()).to_string();
        assert_eq!(plain, "  what      ns\n  µs         7\n  longer  1234\n");
    }
}
