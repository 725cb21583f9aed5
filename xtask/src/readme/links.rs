//! The book is whole: its summary names each chapter once, and every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{BOOK, entries};

/// Where the book's readers find files of the checkout.
const REPOSITORY: &str = "https://github.com/ifunc-rs/ifunc/blob/main/";

/// The texts and the targets of a page's links; code has none.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        // Outside of `code`: every other part.
        for part in line.split('`').step_by(2) {
            let mut rest = part;
            while let Some((_, after)) = rest.split_once("](") {
                let Some((target, after)) = after.split_once(')') else {
                    break;
                };
                links.push(target.to_owned());
                rest = after;
            }
        }
    }
    links
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
            _ => None,
        });
        anchors.insert(kept.collect());
    }
    anchors
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("cannot read `{}`: {why}", path.display()))
}

/// Why a link of `page` leads nowhere.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file: PathBuf = match path {
        "" => page.to_owned(),
        path if path.starts_with(REPOSITORY) => crate::root().join(&path[REPOSITORY.len()..]),
        path if path.contains("://") => return None,
        path => page.parent()?.join(path),
    };
    if !file.exists() {
        return Some(format!("{}: no file for `{link}`", page.display()));
    }
    let is_text = file.extension().is_some_and(|extension| extension == "md");
    if !anchor.is_empty() && is_text && !anchors(&read(&file)).contains(anchor) {
        return Some(format!("{}: no heading for `{link}`", page.display()));
    }
    None
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages: Vec<PathBuf> = entries(BOOK)
        .unwrap()
        .iter()
        .map(|name| crate::root().join(BOOK).join(name))
        .collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| crate::root().join(name)));
    let broken: Vec<String> = pages
        .iter()
        .filter(|page| page.exists())
        .flat_map(|page| {
            let links = links(&read(page));
            links.into_iter().filter_map(|link| broken(page, &link))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_summary_names_each_chapter_once() {
    let summary = crate::root().join(BOOK).join("SUMMARY.md");
    let mut named = links(&read(&summary));
    let title = read(&crate::root().join("docs/book/book.toml"));
    assert!(title.contains("src = \"src\""), "{title}");
    named.sort();
    let chapters: Vec<String> = entries(BOOK)
        .unwrap()
        .into_iter()
        .filter(|name| name != "SUMMARY.md")
        .collect();
    assert_eq!(named, chapters);
}

#[test]
fn links_and_anchors_are_found() {
    assert_eq!(
        links("a [b](c.md#d) `[e](f)` [g](h)\n```\n[i](j)\n```\n"),
        ["c.md#d", "h"]
    );
    assert!(anchors("## When `x` is `Lost`: 2 ways\n").contains("when-x-is-lost-2-ways"));
}
