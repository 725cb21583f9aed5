//! Finds images in programs that embed them.
//!
//! `ifunc_rt::include_image!` puts the bytes of an image and of its description into a program's read-only data, as C programs may
//! do with an array. No section or symbol names them: a stripped program has neither. An image is recognised by its header,
//! and is one if it parses; the description is recognised by the fingerprints in the image.

use ifunc_abi::image::{Entry, Image, MAGIC};

use crate::LibraryImage;
use crate::cargo::fingerprint;

/// An image in a program.
#[derive(Clone, Debug)]
pub struct EmbeddedImage {
    /// Offset in the file.
    pub offset: usize,
    /// The image, named after its entries.
    pub image: LibraryImage,
}

/// The images in a program of any format, in the order of their offsets. An image that is there several times is found once.
#[must_use]
pub fn embedded_images(program: &[u8]) -> Vec<EmbeddedImage> {
    let mut found: Vec<EmbeddedImage> = Vec::new();
    let mut at = 0;
    while let Some(next) = position(program, &MAGIC, at) {
        at = next + MAGIC.len();
        let Ok((image, bytes)) = Image::parse_first(&program[next..]) else {
            continue;
        };
        at = next + bytes.len();
        if found.iter().any(|known| known.image.image == bytes) {
            continue;
        }
        let names: Vec<_> = image.entries().map(|entry| entry.name).collect();
        found.push(EmbeddedImage {
            offset: next,
            image: LibraryImage {
                name: names.join(", "),
                image: bytes.to_vec(),
                about: describe(program, &image),
                debug: Vec::new(),
            },
        });
    }
    found
}

/// The lines of the description that belong to the image: those whose text has the fingerprint that the image states.
fn describe(program: &[u8], image: &Image<'_>) -> String {
    let mut about = String::new();
    for entry in image.entries() {
        let begin = format!("entry {}\n", entry.name);
        let mut at = 0;
        while let Some(next) = position(program, begin.as_bytes(), at) {
            at = next + begin.len();
            let lines = types(&program[at..], &entry);
            if !lines.is_empty() {
                about.push_str(&begin);
                about.push_str(&lines);
                break;
            }
        }
    }
    for import in image.imports().filter(|import| import.fingerprint != 0) {
        let begin = format!("import {} ", import.symbol);
        let mut at = 0;
        while let Some(next) = position(program, begin.as_bytes(), at) {
            at = next + begin.len();
            if let Some(signature) = line(&program[at..])
                && fingerprint(signature) == import.fingerprint
            {
                about.push_str(&format!("{begin}{signature}\n"));
                break;
            }
        }
    }
    about
}

/// The lines of an entry's types, if these bytes begin with them.
fn types(mut bytes: &[u8], entry: &Entry<'_>) -> String {
    let mut lines = String::new();
    while let Some(line) = line(bytes) {
        let stated = match line.split_once(' ') {
            Some(("payload", text)) => (entry.payload, text),
            Some(("target", text)) => (entry.target, text),
            Some(("answer", text)) => (entry.answer, text),
            Some(("convention", _)) => (0, ""),
            _ => break,
        };
        if stated.0 != 0 && fingerprint(stated.1) != stated.0 {
            return String::new();
        }
        lines.push_str(line);
        lines.push('\n');
        bytes = &bytes[line.len() + 1..];
    }
    lines
}

/// The text before the next line feed, as long as a line of a description may be.
fn line(bytes: &[u8]) -> Option<&str> {
    const MAX: usize = ifunc_abi::text::MAX_TEXT + 300;
    let bytes = &bytes[..bytes.len().min(MAX)];
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    std::str::from_utf8(&bytes[..end]).ok()
}

/// The next occurrence at or behind `at`.
fn position(bytes: &[u8], wanted: &[u8], at: usize) -> Option<usize> {
    let found = memchr::memmem::find(bytes.get(at..)?, wanted)?;
    Some(at + found)
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts};

    use super::*;

    fn image(name: &str, payload: u64) -> Vec<u8> {
        let image = ImageParts {
            entries: vec![EntryPart {
                payload,
                ..EntryPart::new(name)
            }],
            arch: ARCH_X86_64,
            rx_align_log2: 4,
            rx: vec![0xc3; 40],
            ..ImageParts::default()
        };
        image.encode().expect("an image")
    }

    #[test]
    fn images_are_found_with_their_types() {
        let (add, visit) = (image("add", fingerprint("u64")), image("visit", 0));
        let program = [
            b"\x7fELF and IFNC that is none, ".as_slice(),
            &add,
            b"entry add\npayload i32\nentry add\npayload u64\nanswer u8\nfollowed by others\n",
            &visit[..30],
            &visit,
            b"entry visit\nconvention bound\n",
            &add,
        ]
        .concat();
        let found = embedded_images(&program);
        let names: Vec<_> = found.iter().map(|found| &*found.image.name).collect();
        assert_eq!(names, ["add", "visit"]);
        assert_eq!(found[0].image.image, add);
        assert!(program[found[1].offset..].starts_with(&visit));
        assert_eq!(found[0].image.about().entry("add").payload(), Some("u64"));
        assert_eq!(found[0].image.about().entry("add").answer(), Some("u8"));
        assert_eq!(found[1].image.about().entry("visit").convention(), Some("bound"));
        assert!(embedded_images(b"IFNC").is_empty());
    }
}
