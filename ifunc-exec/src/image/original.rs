//! Restores the bytes of an installed image as they arrived. The arena holds the code; this keeps the rest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ifunc_abi::image::{Image, Relocation};

/// Bytes of a word that the installation overwrites.
const WORD: usize = size_of::<u64>();

/// What the arena does not hold of an image's bytes.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Header, tables and strings, which precede the code, and the data, which follows it.
    beside_code: Box<[u8]>,
    /// Offset of the code in the image, and its length.
    code: (usize, usize),
    /// Offset in the code and content of each word that the installation overwrites.
    overwritten: Box<[(u32, [u8; WORD])]>,
}

impl Kept {
    /// What to keep of `image`, whose bytes are `bytes`.
    pub(crate) fn of(image: &Image<'_>, bytes: &[u8]) -> Self {
        let (rx, rw) = (image.rx(), image.rw());
        let code_at = bytes.len() - rx.len() - rw.len();
        let relocated = image.relocations().map(|relocation| match relocation {
            Relocation::Relative { offset, .. } | Relocation::Import { offset, .. } => offset,
        });
        let overwritten = image.slot().into_iter().chain(relocated).filter_map(|offset| {
            // Any other word lies in the data, which is kept whole.
            let word = rx.get(offset as usize..)?.first_chunk()?;
            Some((offset, *word))
        });
        Self {
            beside_code: [&bytes[..code_at], rw].concat().into(),
            code: (code_at, rx.len()),
            overwritten: overwritten.collect(),
        }
    }

    /// Bytes of memory.
    pub(super) fn footprint(&self) -> usize {
        self.beside_code.len() + size_of_val(&*self.overwritten)
    }

    /// The original bytes. The code lies in `arena` from byte `at` on.
    pub(super) fn restore(&self, arena: &File, at: usize) -> io::Result<Vec<u8>> {
        let (code_at, len) = self.code;
        let (before, after) = self.beside_code.split_at(code_at);
        let mut bytes = Vec::with_capacity(self.beside_code.len() + len);
        bytes.extend_from_slice(before);
        bytes.resize(code_at + len, 0);
        let code = &mut bytes[code_at..];
        arena.read_exact_at(code, at as u64)?;
        for (offset, word) in &self.overwritten {
            code[*offset as usize..][..WORD].copy_from_slice(word);
        }
        bytes.extend_from_slice(after);
        Ok(bytes)
    }
}
