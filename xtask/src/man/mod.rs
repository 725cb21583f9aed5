//! `cargo xtask man`: the manual pages, made of what `cargo ifunc --help` prints and of the comments in the C headers.

mod header;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::process::{end, ifunc, status};
use header::{Header, Item, Kind};
use page::{Page, alias};

/// A header, and how a program finds it.
struct Source {
    /// The name of its own page, and of the manual.
    name: &'static str,
    include: &'static str,
    path: &'static str,
    about: &'static str,
    /// A line of the synopsis.
    build: &'static str,
}

/// The headers with a page for each function.
const HEADERS: &[Source] = &[
    Source {
        name: "ifunc_rt",
        include: "ifunc_rt.h",
        path: "ifunc-capi/include/ifunc_rt.h",
        about: "the runtime of injected functions for C and C++",
        build: "cc $(pkg-config --cflags ifunc_rt) ... $(pkg-config --libs ifunc_rt)",
    },
    Source {
        name: "ifunc",
        include: "ifunc.h",
        path: "ifunc-build/include/ifunc.h",
        about: "writing injected functions in C and C++",
        build: "cargo ifunc build NAME.c",
    },
];

/// The command: `cargo xtask man [--to DIR]`.
pub(crate) fn command(options: &[String]) -> ExitCode {
    let default = crate::target().join("man");
    let to = match options {
        [] => default.as_path(),
        [option, to] if option == "--to" => Path::new(to),
        _ => {
            eprintln!(
                "error: unknown arguments: {}\nhelp: cargo xtask man [--to DIR]",
                options.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    end(write(to).map(|note| println!("{note} in {}", to.display())))
}

/// Writes all pages to `to/man1` and `to/man3`. Returns how many.
pub(crate) fn write(to: &Path) -> Result<String, String> {
    let (commands, functions) = (to.join("man1"), to.join("man3"));
    for folder in [&commands, &functions] {
        fs::create_dir_all(folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    }
    let folder = commands.to_str().ok_or("the folder's name is not UTF-8")?;
    status(&mut ifunc(&["man", folder])?)?;
    let mut count = fs::read_dir(&commands).map_or(0, Iterator::count);
    for source in HEADERS {
        for (name, text) in pages(source, &header_of(source)?) {
            let path = functions.join(format!("{name}.3"));
            fs::write(&path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))?;
            count += 1;
        }
    }
    Ok(format!("{count} pages"))
}

fn header_of(source: &Source) -> Result<Header, String> {
    let text = fs::read_to_string(crate::root().join(source.path))
        .map_err(|e| format!("cannot read `{}`: {e}", source.path))?;
    Ok(header::read(&text))
}

/// The pages of a header by name: its own, and one for each function and macro. What has a common comment shares a page.
fn pages(source: &Source, header: &Header) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::from([(source.name.to_owned(), overview(source, header))]);
    for item in items_with_pages(header) {
        let (first, others) = (&item.names[0], &item.names[1..]);
        pages.insert(first.clone(), of_item(source, item));
        for other in others {
            pages.insert(other.clone(), alias(first, 3));
        }
    }
    pages
}

fn items_with_pages(header: &Header) -> impl Iterator<Item = &Item> {
    let items = header.items.iter();
    items.filter(|item| matches!(item.kind, Kind::Function | Kind::Macro))
}

fn overview(source: &Source, header: &Header) -> String {
    let mut page = Page::new(source.name, 3, source.name);
    page.heading("NAME");
    page.line(&format!("{} - {}", source.name, source.about));
    synopsis(&mut page, source, &[]);
    page.heading("DESCRIPTION");
    page.prose(&header.about);
    let of = |kind: Kind| header.items.iter().filter(move |item| item.kind == kind);
    for (kind, title) in [(Kind::Type, "TYPES"), (Kind::Constant, "CONSTANTS")] {
        for (n, item) in of(kind).enumerate() {
            if n == 0 {
                page.heading(title);
            }
            page.prose(&item.comment);
            page.code(item.declarations.iter().flat_map(|text| text.lines()));
        }
    }
    for (kind, title) in [(Kind::Function, "FUNCTIONS"), (Kind::Macro, "MACROS")] {
        let mut part = "";
        for (n, item) in of(kind).enumerate() {
            if n == 0 {
                page.heading(title);
            }
            if item.part != part {
                part = &item.part;
                page.subheading(part.split(['.', ':']).next().unwrap_or_default());
            }
            page.entry(&format!("{}(3)", item.names.join("(3), ")), &summary(item));
        }
    }
    page.finish()
}

fn of_item(source: &Source, item: &Item) -> String {
    let mut page = Page::new(&item.names[0], 3, source.name);
    page.heading("NAME");
    let summary = summary(item).replace('`', "");
    page.line(&format!("{} - {}", item.names.join(", "), summary));
    synopsis(&mut page, source, &item.declarations);
    page.heading("DESCRIPTION");
    page.prose(match item.comment.is_empty() {
        true => &item.part,
        false => &item.comment,
    });
    page.heading("SEE ALSO");
    page.line(&format!("`{}`(3)", source.name));
    page.finish()
}

fn synopsis(page: &mut Page, source: &Source, declarations: &[String]) {
    page.heading("SYNOPSIS");
    let include = format!("#include <{}>", source.include);
    let mut lines = vec![include.as_str(), ""];
    if declarations.is_empty() {
        lines.push(source.build);
    }
    lines.extend(declarations.iter().flat_map(|text| text.lines()));
    page.code(lines);
}

/// The first sentence of the comment, or the part of the header.
fn summary(item: &Item) -> String {
    let text = match item.comment.is_empty() {
        true => &item.part,
        false => &item.comment,
    };
    let paragraph: Vec<&str> = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph
        .split_once(". ")
        .map_or(paragraph.as_str(), |(first, _)| first);
    sentence.trim_end_matches(['.', ':']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{HEADERS, header_of, pages};

    /// Names of functions, read in another way than the pages are: what stands in front of `(` at the beginning of a line.
    fn functions(text: &str) -> BTreeSet<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let lines = text
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        lines
            .filter(|line| {
                !line.starts_with("typedef")
                    && !line.starts_with("extern \"C\"")
                    && !line.starts_with("template")
            })
            .filter_map(|line| line.split_once('('))
            .filter_map(|(start, _)| start.rsplit(|c| !is_name(c)).next())
            .filter(|name| !name.is_empty() && !name.starts_with("__"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_function_has_a_page_that_says_something() {
        for source in HEADERS {
            let text = std::fs::read_to_string(crate::root().join(source.path)).unwrap();
            let pages = pages(source, &header_of(source).unwrap());
            let functions = functions(&text);
            assert!(functions.len() > 10, "`{}`: {functions:?}", source.path);
            for name in functions {
                let page = pages.get(&name).unwrap_or_else(|| panic!("no page of `{name}`"));
                if page.starts_with(".so man3/") {
                    continue;
                }
                assert!(page.contains(&name), "`{name}` is not on its page");
                let (_, description) = page.split_once(".SH DESCRIPTION\n").unwrap();
                let (description, _) = description.split_once(".SH SEE ALSO\n").unwrap();
                assert!(
                    description.trim().len() > 8,
                    "the page of `{name}` does not say what it does"
                );
                let overview = &pages[source.name];
                assert!(
                    overview.contains(&format!("{name}(3)")),
                    "`{}(3)` does not name `{name}`",
                    source.name
                );
            }
        }
    }
}
