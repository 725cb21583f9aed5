//! Edge lists as of the Stanford Large Network Dataset Collection: lines `FROM<TAB>TO`, and comments that begin with `#`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use example_servers::Failure;

/// An edge list, whose vertices are renumbered as they appear: 0, 1, 2, …
#[derive(Clone, Debug)]
pub struct EdgeList {
    path: PathBuf,
    numbers: HashMap<u64, u32>,
}

/// Longest line in bytes: a file of another kind may have no lines.
const LINE: u64 = 4096;

impl EdgeList {
    /// Reads the vertices of a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no edge: the message has its number.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let mut numbers = HashMap::new();
        for_each(path, |from, to| {
            for id in [from, to] {
                let next = u32::try_from(numbers.len()).map_err(|_| "there are 2^32 vertices or more")?;
                numbers.entry(id).or_insert(next);
            }
            Ok(())
        })?;
        if numbers.is_empty() {
            return Err(format!("`{}` has no edge", path.display()).into());
        }
        Ok(Self {
            path: path.to_owned(),
            numbers,
        })
    }

    /// Number of vertices.
    #[must_use]
    pub fn vertices(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// The number of a vertex that the file calls `id`.
    #[must_use]
    pub fn number(&self, id: u64) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// What the file calls a vertex.
    #[must_use]
    pub fn id(&self, number: u32) -> u64 {
        let mut numbers = self.numbers.iter();
        numbers
            .find(|(_, other)| **other == number)
            .map_or(u64::MAX, |(id, _)| *id)
    }

    /// Calls `each` with every edge. The file is read again, line by line.
    ///
    /// # Errors
    /// The file has changed, or cannot be read.
    pub fn for_each_edge(&self, mut each: impl FnMut(u32, u32)) -> Result<(), Failure> {
        for_each(&self.path, |from, to| {
            let number = |id| self.number(id).ok_or("the file has changed");
            each(number(from)?, number(to)?);
            Ok(())
        })
    }
}

/// Calls `each` with the two numbers of every line that is no comment.
fn for_each(path: &Path, mut each: impl FnMut(u64, u64) -> Result<(), &'static str>) -> Result<(), Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|why| format!("cannot open `{shown}`: {why}"))?;
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = file.by_ref().take(LINE).read_until(b'\n', &mut line);
        match read.map_err(|why| format!("cannot read `{shown}`: {why}"))? {
            0 => break,
            len if len as u64 == LINE => Err("the line is longer than 4 KiB"),
            _ if number == 1 && line.starts_with(&[0x1f, 0x8b]) => {
                Err("the file is compressed\nhelp: gunzip it first")
            }
            _ => match parse(&line) {
                Ok(Some((from, to))) => each(from, to),
                Ok(None) => Ok(()),
                Err(why) => Err(why),
            },
        }
        .map_err(|why| format!("{shown}:{number}: {why}"))?;
    }
    Ok(())
}

/// The numbers of a line; none in a comment or an empty line.
fn parse(line: &[u8]) -> Result<Option<(u64, u64)>, &'static str> {
    if line.starts_with(b"#") {
        return Ok(None);
    }
    let line = str::from_utf8(line).map_err(|_| "the line is no text")?;
    let mut words = line.split_whitespace();
    let mut number = || {
        let number = words.next().map(str::parse);
        number
            .transpose()
            .map_err(|_| "a vertex is a number from 0 to 2^64 - 1")
    };
    match (number()?, number()?) {
        (None, _) => Ok(None),
        (Some(_), None) => Err("the second vertex of the edge is missing"),
        (Some(from), Some(to)) if words.next().is_none() => Ok(Some((from, to))),
        _ => Err("a line has two vertices, and here is more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: impl AsRef<[u8]>, name: &str) -> Result<EdgeList, Failure> {
        let path = std::env::temp_dir().join(format!("snap-{name}-{}.txt", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let list = EdgeList::open(&path).and_then(|list| {
            // The second reading finds the same.
            list.for_each_edge(|_, _| {})?;
            Ok(list)
        });
        std::fs::remove_file(path).unwrap();
        list
    }

    #[test]
    fn ids_are_renumbered_as_they_appear() {
        let list = open(
            "# FromNodeId\tToNodeId\n900\t7\n7\t900\r\n\n7 18446744073709551615",
            "good",
        )
        .unwrap();
        assert_eq!(list.vertices(), 3);
        assert_eq!(
            [900, 7, u64::MAX].map(|id| list.number(id)),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!((list.number(8), list.id(0)), (None, 900));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = |text: &[u8], name| open(text, name).unwrap_err().to_string();
        for (text, expected) in [
            (
                &b"1\t2\n3\n"[..],
                ".txt:2: the second vertex of the edge is missing",
            ),
            (b"# a\n1\tb\n", ".txt:2: a vertex is a number"),
            (b"1\t-2\n", ".txt:1: a vertex is a number"),
            (b"1\t2\t0.5\n", ".txt:1: a line has two vertices"),
            (b"1\t2\n\xff\t3\n", ".txt:2: the line is no text"),
            (b"\x1f\x8b\x08", ".txt:1: the file is compressed\nhelp: gunzip"),
            (&[b'1'; 5000], ".txt:1: the line is longer than 4 KiB"),
            (b"# nothing\n", "has no edge"),
        ] {
            let error = error(text, "bad");
            assert!(error.contains(expected), "{error}");
        }
        let none = EdgeList::open(Path::new("/no/such/file"))
            .unwrap_err()
            .to_string();
        assert!(none.starts_with("cannot open `/no/such/file`: "), "{none}");
    }
}
