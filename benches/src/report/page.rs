//! `docs/performance.md`. Its numbers come from `docs/performance/results.json`, its remarks from
//! `docs/performance/remarks.md`, and the rest from the templates in `page/`.

#[cfg(test)]
mod tests;

use std::fmt::{Display, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::chart::{Chart, DARK, LIGHT};
use super::remarks::Remarks;
use super::{figure, plots, terminal};
use crate::figures::FIGURES;
use crate::row::Row;

const RESULTS: &str = "performance/results.json";
const REMARKS: &str = "performance/remarks.md";
const PAGE: &str = "performance.md";
/// Folder of the plots, relative to the page.
const PLOTS: &str = "performance";

/// The text before the results.
const HEAD: &str = include_str!("page/head.md");
/// The text before the goals.
const GOALS: &str = include_str!("page/goals.md");
/// The text after the results.
const END: &str = include_str!("page/end.md");

/// The page and its plots.
pub(super) struct Page {
    pub(super) text: String,
    /// File names and contents.
    pub(super) plots: Vec<(String, String)>,
}

/// Renders the page and its plots from the results in the folder. With `results`, it copies those to the
/// folder first.
///
/// # Errors
/// A file cannot be read or written, holds no results, or a remark is about a figure that does not exist.
pub(crate) fn render(results: Option<&Path>, docs: &Path) -> Result<()> {
    let kept = docs.join(RESULTS);
    let file = results.unwrap_or(&kept);
    let (json, remarks) = (read(file)?, read(&docs.join(REMARKS))?);
    // Renders before writing, so that invalid results overwrite nothing.
    let page = Page::of(&json, &remarks).with_context(|| format!("rendering {}", file.display()))?;
    if file != kept {
        write(&kept, &json)?;
    }
    for (name, svg) in &page.plots {
        write(&docs.join(PLOTS).join(name), svg)?;
    }
    write(&docs.join(PAGE), &page.text)?;
    let page_file = docs.join(PAGE);
    anstream::println!("wrote {} and {} plots", page_file.display(), page.plots.len());
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

impl Page {
    /// Renders a page from results in JSON and from remarks.
    ///
    /// # Errors
    /// The JSON holds no results, or a remark is about a figure that does not exist.
    pub(super) fn of(json: &str, remarks: &str) -> Result<Self> {
        let rows: Vec<Row> = serde_json::from_str(json).context("these are not results")?;
        let remarks = Remarks::parse(remarks);
        let figures = terminal::figures(&rows);
        for id in remarks.figures() {
            let exists = figures.contains(&id) || FIGURES.iter().any(|figure| figure.id == id);
            ensure!(exists, "{REMARKS} has a heading `{id}`, which is not a figure");
        }
        let mut page = Self {
            text: HEAD.into(),
            plots: Vec::new(),
        };
        page.machine(&rows);
        page.goals(&rows, &remarks);
        page.say("\n## Figures");
        for id in figures {
            let rows: Vec<&Row> = rows.iter().filter(|row| row.figure == id).collect();
            page.figure(id, &rows, &remarks)?;
        }
        page.say(format_args!("\n{}", END.trim_end()));
        Ok(page)
    }

    fn say(&mut self, text: impl Display) {
        let _ = writeln!(self.text, "{text}");
    }

    fn machine(&mut self, rows: &[Row]) {
        let Some(machine) = rows.iter().find_map(|row| row.machine.as_ref()) else {
            return;
        };
        self.say("\n## The machine\n\n| | |\n| --- | --- |");
        for (name, value) in terminal::facts(machine) {
            self.say(format_args!("| {name} | {value} |"));
        }
        if !machine.disturbed.is_empty() {
            self.say(format_args!(
                "\n**The machine was disturbed**: {}. Ratios of neighbouring slots are less sensitive to that than single values.",
                machine.disturbed.join("; ")
            ));
        }
    }

    fn goals(&mut self, rows: &[Row], remarks: &Remarks<'_>) {
        let Some(table) = terminal::goals_table(rows) else {
            return;
        };
        self.say(format_args!(
            "\n{}\n\n{}",
            GOALS.trim_end(),
            table.markdown().trim_end()
        ));
        let missed = terminal::missed(rows);
        if missed.is_empty() {
            return;
        }
        self.say("\nThe figures below explain why goals are missed and what was tried:\n");
        for id in missed {
            let about = if remarks.about(id).is_some() {
                ""
            } else {
                ": no explanation yet"
            };
            self.say(format_args!("* [`{id}`](#{id}){about}"));
        }
    }

    fn figure(&mut self, id: &str, rows: &[&Row], remarks: &Remarks<'_>) -> Result<()> {
        self.say(format_args!("\n### {id}\n"));
        if let Some(figure) = FIGURES.iter().find(|figure| figure.id == id) {
            self.say(format_args!("{}.\n", capitalised(figure.title)));
        }
        for chart in plots::of(id, rows) {
            self.plot(&chart)?;
        }
        self.text.push_str(&figure::table(rows, true).markdown());
        let notes = figure::notes(rows);
        if !notes.is_empty() {
            self.say("");
            for note in notes {
                self.say(format_args!("* {note}"));
            }
        }
        if let Some(remark) = remarks.about(id) {
            self.say(format_args!("\n{remark}"));
        }
        Ok(())
    }

    /// GitHub selects the plot by its theme. Renderers without `picture` show the light one.
    fn plot(&mut self, chart: &Chart) -> Result<()> {
        for theme in [&LIGHT, &DARK] {
            self.plots.push((chart.file(theme), chart.draw(theme)?));
        }
        let [light, dark] = [&LIGHT, &DARK].map(|theme| chart.file(theme));
        let title = chart.title;
        self.say(format_args!(
            "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"{PLOTS}/{dark}\">\n  \
             <img alt=\"{title}\" src=\"{PLOTS}/{light}\">\n</picture>\n"
        ));
        Ok(())
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}
