//! The code blocks of a Markdown file.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The info string after the fence: `sh`, `rust`, `sh no_run`.
    pub(crate) info: &'a str,
    /// Line of the fence, from 1.
    pub(crate) line: usize,
    /// The text between the fences.
    pub(crate) text: String,
}

impl Block<'_> {
    /// The language.
    pub(crate) fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// The info string has this word after the language.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.info.split_whitespace().skip(1).any(|other| other == word)
    }

    /// The block is for readers only: a clone cannot run it on itself.
    pub(crate) fn is_only_read(&self) -> bool {
        self.has("no_run")
    }

    /// The file of a project that the block is: `rust file=src/lib.rs`.
    pub(crate) fn file(&self) -> Option<&str> {
        self.info
            .split_whitespace()
            .find_map(|word| word.strip_prefix("file="))
    }
}

/// All blocks, in order.
pub(crate) fn blocks(markdown: &str) -> Vec<Block<'_>> {
    let mut all = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (number, line) in markdown.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block {
                    info: info.trim(),
                    line: number + 1,
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => all.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_blocks() {
        let all = blocks("a\n```sh no_run\nls\n```\nb\n```rust\nfn a() {}\n\n```\n");
        assert_eq!(all.len(), 2);
        assert!(all[0].is_only_read());
        assert_eq!((all[0].language(), all[0].line), ("sh", 2));
        assert_eq!(
            (all[1].language(), all[1].text.as_str()),
            ("rust", "fn a() {}\n\n")
        );
    }
}
