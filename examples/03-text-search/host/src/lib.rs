//! Searching where the data is. The target owns a large text and lets ifuncs read it. The source first sends
//! a regular expression and the code that runs it, then another search function to the same running target.
//! Only the selected lines come back.
//!
//! `cargo ifunc run 03-text-search -- FILE PATTERN [FOLDER]` searches `FILE` twice: for lines that match the
//! regular expression `PATTERN`, and for lines that contain the text `PATTERN` in any case. It prints the
//! first lines of each result. With a `FOLDER`, it writes all lines to `search.txt` and `search_folded.txt`
//! there, in the format of `grep -n`.

pub mod document;
pub mod pattern;
pub mod results;

use std::env;
use std::error::Error;
use std::path::PathBuf;

use example_03_text_search_ifuncs::{Page, Position, Search, SearchFolded, search, search_folded};
use ifunc_rt::{Handle, Policy, Source, Target};

use document::Document;
use results::Results;

/// Owns the text and lets sources search it until the process is stopped.
///
/// # Errors
/// The command line names no readable file, or the target cannot listen on the address.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or(USAGE)?;
    let mut document = Document::open(path.as_ref())?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut document)?;
    Ok(())
}

/// Sends both searches, and prints what they found and how many bytes travelled.
///
/// # Errors
/// The pattern does not compile, the target cannot be reached or fails, or the folder is not writable.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let needle = env::args_os().nth(2).ok_or(USAGE)?;
    let needle = needle.to_str().ok_or("the pattern is not UTF-8")?;
    let folder = env::args_os().nth(3).map(PathBuf::from);
    let pattern = pattern::compile(needle)?;

    let source = Source::connect(addr)?;
    let by_pattern = source.register::<search>()?;
    let mut results = Results::new("search", folder.as_deref())?;
    read_pages(&by_pattern, &mut results, |from| Search {
        from,
        dfa: pattern.dfa(),
    })?;
    results.finish(&format!("match `{needle}`"))?;

    // The target has never seen this function either, and keeps running.
    let folded = source.register::<search_folded>()?;
    let mut results = Results::new("search_folded", folder.as_deref())?;
    read_pages(&folded, &mut results, |from| SearchFolded { from, needle })?;
    results.finish(&format!("contain `{needle}` in any case"))?;
    Ok(())
}

const USAGE: &str = "which text, which lines? help: cargo ifunc run 03-text-search -- FILE PATTERN [FOLDER]";

/// Requests page after page.
fn read_pages<'p, F>(
    ifunc: &Handle<F>,
    results: &mut Results,
    payload: impl Fn(Position) -> F::Payload<'p>,
) -> Result<(), Box<dyn Error>>
where
    F: ifunc::Ifunc<Answer = Page>,
    F::Payload<'p>: Sized,
{
    results.travelled(ifunc.image().len());
    let mut next = Some(Position::START);
    while let Some(from) = next {
        let payload = payload(from);
        results.travelled(F::bound(&payload));
        let page = ifunc.call(&payload)?.wait()?;
        next = page.next;
        results.add(page)?;
    }
    Ok(())
}
