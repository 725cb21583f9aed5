//! An image as an aligned table.

use std::io::{self, Write};

use anstyle::Style;
use ifunc_abi::Counted;

use super::report::{EntryReport, RelocationReport, Report, Type};

const NAME: Style = Style::new().bold();
const FIELD: Style = anstyle::AnsiColor::Cyan.on_default();
const DIM: Style = Style::new().dimmed();

/// Width of the field names, in columns.
const COLUMNS: usize = 12;
/// Number of relocations listed; the rest is counted, and `--json` lists all.
const LISTED: usize = 16;

/// Prints the slices of libraries, a line for each.
pub(super) fn print_slices(reports: &[Report], out: &mut dyn Write) -> io::Result<()> {
    for Report {
        name,
        id,
        image_bytes,
        slice,
        ..
    } in reports
    {
        let Some(slice) = slice else { continue };
        if slice.index == 0 {
            writeln!(out, "{NAME}{name}{NAME:#}: {}", Counted(slice.count, "slice"))?;
        }
        field(
            out,
            &slice.machine,
            format_args!("{image_bytes:>8} bytes  {DIM}{id}{DIM:#}"),
        )?;
    }
    Ok(())
}

/// Prints a report.
pub(super) fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { name, id, .. } = report;
    writeln!(out, "{NAME}{name}{NAME:#}")?;
    field(out, "id", id)?;
    if let Some(offset) = report.offset {
        field(out, "embedded", format_args!("at {offset:#x} of the file"))?;
    }
    let cpu = match &report.cpu_features[..] {
        [] => String::new(),
        features => format!(", needs {}", features.join(" ")),
    };
    field(
        out,
        "arch",
        format_args!("{}{cpu} (image ABI {})", report.arch, report.abi),
    )?;
    let writable = match report.data_memory_bytes {
        0 => String::new(),
        memory => format!(", {} of data ({memory} in memory)", report.data_bytes),
    };
    field(
        out,
        "size",
        format_args!(
            "{} bytes: {} of code{writable}, {} of header and tables",
            report.image_bytes,
            report.code_bytes,
            { report.image_bytes - report.code_bytes - report.data_bytes }
        ),
    )?;
    match report.slot {
        Some(slot) => field(out, "GOT slot", format_args!("at {slot:#x}"))?,
        None => field(out, "GOT slot", "none")?,
    }
    if !report.flags.is_empty() {
        field(out, "flags", report.flags.join(" "))?;
    }
    for one in &report.entries {
        entry(one, out)?;
    }
    imports(report, out)?;
    relocations(report, out)?;
    if !report.needed.is_empty() {
        field(out, "needed", report.needed.join(" "))?;
    }
    Ok(())
}

fn entry(entry: &EntryReport, out: &mut dyn Write) -> io::Result<()> {
    let name = &entry.name;
    let batch = entry.batch;
    let batch = batch.map_or_else(String::new, |batch| format!(", {name}_batch at {batch:#x}"));
    field(
        out,
        "entry",
        format_args!("{name}_main at {:#x}{batch}", entry.main),
    )?;
    if !entry.flags.is_empty() {
        field(out, "flags", entry.flags.join(" "))?;
    }
    field(
        out,
        "payload",
        format_args!("{}, aligned to {}", typed(&entry.payload), entry.payload_align),
    )?;
    field(out, "target", typed(&entry.target))?;
    field(out, "answer", typed(&entry.answer))?;
    if let Some(convention) = &entry.convention {
        field(
            out,
            "convention",
            format_args!("payload_{}", convention.replace('-', "_")),
        )?;
    }
    Ok(())
}

fn imports(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.imports.is_empty() {
        return field(out, "imports", "none");
    }
    let width = report
        .imports
        .iter()
        .map(|import| import.symbol.len())
        .max()
        .unwrap_or(0);
    for (index, import) in report.imports.iter().enumerate() {
        let weak = if import.weak { "weak " } else { "" };
        let what = import.prototype.as_ref().or(import.signature.as_ref());
        let what = what.map_or_else(
            || format!("{weak}{}", import.kind),
            |what| format!("{weak}{}  {what}", import.kind),
        );
        let print = import
            .fingerprint
            .as_deref()
            .map_or_else(String::new, |hex| format!(" {DIM}{hex}{DIM:#}"));
        field(
            out,
            if index == 0 { "imports" } else { "" },
            format_args!("{:width$}  {what}{print}", import.symbol),
        )?;
    }
    Ok(())
}

fn relocations(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.relocations.is_empty() {
        return field(out, "relocations", "none");
    }
    for (index, relocation) in report.relocations.iter().take(LISTED).enumerate() {
        let label = if index == 0 { "relocations" } else { "" };
        match relocation {
            RelocationReport::Relative { offset, addend } => {
                field(out, label, format_args!("{offset:#8x}  image {addend:+#x}"))?;
            }
            RelocationReport::Import {
                offset,
                symbol,
                addend,
            } => {
                field(out, label, format_args!("{offset:#8x}  {symbol} {addend:+#x}"))?;
            }
        }
    }
    match report.relocations.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => field(out, "", format_args!("and {more} more (--json lists them)")),
    }
}

fn typed(ty: &Type) -> String {
    match (&ty.text, &ty.fingerprint) {
        (Some(text), Some(fingerprint)) => format!("{text} {DIM}{fingerprint}{DIM:#}"),
        (None, Some(fingerprint)) => format!("{DIM}{fingerprint}{DIM:#}"),
        (Some(text), None) => text.clone(),
        (None, None) => "not stated".into(),
    }
}

fn field(out: &mut dyn Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "{FIELD}{name:>COLUMNS$}{FIELD:#}  {value}")
}
