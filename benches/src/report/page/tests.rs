//! Compares a small page with its snapshot, and the page in `docs` with its results.

use std::path::Path;

use super::{PAGE, Page, REMARKS, RESULTS, read};

const RESULTS_OF_NO_MACHINE: &str = include_str!("fixture.json");

const SOME_REMARKS: &str = "\
This text describes the file.

## rate-am

The ring was *full*.

Larger ones were tried.
";

#[test]
fn a_page_is_rendered_from_results_and_remarks() {
    let page = Page::of(RESULTS_OF_NO_MACHINE, SOME_REMARKS).unwrap();
    insta::assert_snapshot!("page", page.text);
    let names: Vec<&str> = page.plots.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "latency-shm.svg",
            "latency-shm-dark.svg",
            "rate-shm.svg",
            "rate-shm-dark.svg",
            "first-arrival.svg",
            "first-arrival-dark.svg",
            "calls-shm.svg",
            "calls-shm-dark.svg",
        ]
    );
    insta::assert_snapshot!("latency-shm.svg", page.plots[0].1);
}

#[test]
fn invalid_results_and_unknown_figures_are_reported() {
    let error = |json, remarks| Page::of(json, remarks).err().map(|error| format!("{error:#}"));
    let message = error("[{}]", "").unwrap_or_default();
    assert!(message.contains("these are not results"), "{message}");
    let message = error("[]", "\n## lat-amm\n\nIt is late.\n").unwrap_or_default();
    assert!(
        message.contains("has a heading `lat-amm`, which is not a figure"),
        "{message}"
    );
    assert_eq!(error("[]", ""), None);
}

/// Fails if the page was edited by hand, or if the results changed without the page.
#[test]
fn the_page_in_docs_is_up_to_date() {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
    let file = |name: &str| read(&docs.join(name)).unwrap();
    let page = Page::of(&file(RESULTS), &file(REMARKS)).unwrap();
    let mut differ: Vec<String> = Vec::new();
    if page.text != file(PAGE) {
        differ.push(PAGE.into());
    }
    for (name, svg) in &page.plots {
        let path = format!("performance/{name}");
        if std::fs::read_to_string(docs.join(&path)).ok().as_ref() != Some(svg) {
            differ.push(path);
        }
    }
    assert!(
        differ.is_empty(),
        "{differ:?} of docs differ from what the results render to; help: edit results.json, remarks.md or the templates, then run `cargo xtask bench --render`"
    );
}
