//! `cargo ifunc man`: manual pages of this command, made of what `--help` prints.

use std::fs;
use std::io::Write as _;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{Cli, ManArgs};
use crate::error::Failure;

/// Writes a page for the command and one for each subcommand.
pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    fs::create_dir_all(&args.dir).map_err(|source| Failure::Io {
        action: "create",
        path: args.dir.clone(),
        source,
    })?;
    for (name, page) in pages() {
        let path = args.dir.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|source| Failure::Io {
            action: "write",
            path,
            source,
        })?;
    }
    Ok(())
}

/// All pages, with their names.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut cli = Cli::command()
        .name("cargo-ifunc")
        .display_name("cargo-ifunc")
        .disable_help_subcommand(true);
    // Gives the subcommands the options that all of them have.
    cli.build();
    let mut pages = vec![("cargo-ifunc".to_owned(), page(&cli, "cargo-ifunc", "cargo ifunc"))];
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("cargo-ifunc-{}", command.get_name());
        let typed = format!("cargo ifunc {}", command.get_name());
        let page = page(command, &name, &typed);
        pages.push((name, page));
    }
    pages
}

/// The page of a command that is typed so.
fn page(command: &clap::Command, name: &str, typed: &str) -> Vec<u8> {
    let command = command
        .clone()
        .display_name(name.to_owned())
        .bin_name(typed.to_owned());
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let has_subcommands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let man = Man::new(command)
        .source(concat!("ifunc ", env!("CARGO_PKG_VERSION")))
        .manual("ifunc");
    let mut out = Vec::new();
    let rendered = man
        .render_title(&mut out)
        .and_then(|()| man.render_name_section(&mut out))
        .and_then(|()| man.render_synopsis_section(&mut out))
        .and_then(|()| man.render_description_section(&mut out))
        .and_then(|()| out.write_all(&notes(&after)))
        .and_then(|()| man.render_options_section(&mut out))
        .and_then(|()| match has_subcommands {
            true => man.render_subcommands_section(&mut out),
            false => Ok(()),
        })
        .and_then(|()| out.write_all(&examples(&after)));
    // Memory takes all bytes.
    debug_assert!(rendered.is_ok());
    out
}

/// The paragraphs that `--help` prints behind the options.
fn notes(after: &str) -> Vec<u8> {
    let notes = after.split("Examples:\n").next().unwrap_or_default().trim();
    let mut roff = Roff::new();
    for paragraph in notes.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        roff.control("PP", []);
        roff.text([roman(paragraph)]);
    }
    roff.render().into_bytes()
}

fn examples(after: &str) -> Vec<u8> {
    let Some((_, examples)) = after.split_once("Examples:\n") else {
        return Vec::new();
    };
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in examples.lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff.render().into_bytes()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Cli, pages};

    #[test]
    fn every_subcommand_has_a_page_with_its_options() {
        let pages = pages();
        let text = |name: &str| {
            let page = pages.iter().find(|(page, _)| page == name);
            let (_, page) = page.unwrap_or_else(|| panic!("no page `{name}`"));
            String::from_utf8(page.clone()).unwrap().replace("\\-", "-")
        };
        let whole = text("cargo-ifunc");
        let cli = Cli::command();
        let commands: Vec<_> = cli
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .collect();
        assert_eq!(pages.len(), commands.len() + 1);
        for command in commands {
            let name = format!("cargo-ifunc-{}", command.get_name());
            assert!(
                whole.contains(&format!("{name}(1)")),
                "`{name}` is not on the page of the command"
            );
            let page = text(&name);
            assert!(page.contains(&format!("{name} - {}", command.get_about().unwrap())));
            assert!(page.contains(&format!("cargo ifunc {}", command.get_name())));
            assert!(page.contains(".SH EXAMPLES"), "`{name}`");
            for long in command.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(page.contains(&format!("--{long}")), "`{name}` without `--{long}`");
            }
        }
    }
}
