//! The results of a search, and their cost.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use example_03_text_search_ifuncs::{Match, Page};
use ifunc::Answer;
use ifunc::codec::Postcard;

/// Number of lines printed.
const SHOWN: u64 = 5;
/// Number of characters printed of a line.
const WIDTH: usize = 100;

/// The result of one ifunc.
#[derive(Debug)]
pub struct Results {
    name: &'static str,
    /// The file for all lines.
    file: Option<BufWriter<File>>,
    started: Instant,
    matches: u64,
    searched: u64,
    pages: u64,
    sent: usize,
    answered: usize,
    /// Buffer for measuring answers.
    scratch: Vec<u8>,
}

impl Results {
    /// An empty result. With a folder, the lines go to the file `NAME.txt` there.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(name: &'static str, folder: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let file = match folder {
            Some(folder) => {
                let path = folder.join(name).with_extension("txt");
                let file = File::create(&path);
                Some(BufWriter::new(
                    file.map_err(|e| format!("cannot write `{}`: {e}", path.display()))?,
                ))
            }
            None => None,
        };
        Ok(Self {
            name,
            file,
            started: Instant::now(),
            matches: 0,
            searched: 0,
            pages: 0,
            sent: 0,
            answered: 0,
            scratch: Vec::new(),
        })
    }

    /// Counts bytes of code or payload that were sent.
    pub fn travelled(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Adds a page.
    ///
    /// # Errors
    /// A line cannot be written to the file.
    pub fn add(&mut self, page: Page) -> Result<(), Box<dyn Error>> {
        self.pages += 1;
        self.searched += page.searched;
        self.answered += self.size_of(&page);
        for found in &page.matches {
            if let Some(file) = &mut self.file {
                write!(file, "{}:", found.at.line)?;
                file.write_all(&found.text)?;
                file.write_all(b"\n")?;
            }
            if self.matches < SHOWN {
                println!("{}:{}", found.at.line, printable(found));
            }
            self.matches += 1;
        }
        Ok(())
    }

    /// Prints the totals. `chosen` describes the selected lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, chosen: &str) -> Result<(), Box<dyn Error>> {
        if let Some(file) = &mut self.file {
            file.flush()?;
        }
        if self.matches > SHOWN {
            println!("and {} more", self.matches - SHOWN);
        }
        println!("{}: {} lines {chosen}", self.name, self.matches);
        println!(
            "searched {} on the target; {} went there, {} came back ({} pages, {} s)",
            Bytes(self.searched),
            Bytes(self.sent as u64),
            Bytes(self.answered as u64),
            self.pages,
            Seconds(self.started.elapsed()),
        );
        Ok(())
    }

    /// The encoded size of an answer.
    fn size_of(&mut self, page: &Page) -> usize {
        let texts: usize = page.matches.iter().map(|found| found.text.len()).sum();
        self.scratch.resize(texts + 64 * (page.matches.len() + 1), 0);
        Answer::<Postcard>::encode(page, &mut self.scratch).unwrap_or(texts)
    }
}

/// A line for the terminal, with control characters escaped.
fn printable(found: &Match) -> String {
    let text = String::from_utf8_lossy(&found.text);
    let mut shown: String = text
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .take(WIDTH)
        .collect();
    if shown.chars().count() < text.chars().count() || (found.text.len() as u64) < found.len {
        shown.push_str(&format!(" … ({})", Bytes(found.len)));
    }
    shown
}

struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} B"),
            n if n < 1_000_000 => write!(f, "{:.1} kB", n as f64 / 1e3),
            n => write!(f, "{:.1} MB", n as f64 / 1e6),
        }
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0.as_secs_f64())
    }
}
