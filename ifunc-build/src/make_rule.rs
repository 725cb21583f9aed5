//! Makefile rules, in which compilers list the files that they read.

use std::path::PathBuf;

/// The prerequisites of a rule `output: one two\ three \` as cargo, GCC and Clang write them. Later rules are skipped:
/// they stand for removed files.
pub(crate) fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let rule = rule.replace("\\\r\n", " ").replace("\\\n", " ");
    let line = rule.lines().next().unwrap_or_default();
    let Some((_, rest)) = line.split_once(": ") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut word = String::new();
    let mut characters = rest.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('\\', Some(&next @ (' ' | '#'))) | ('$', Some(&next @ '$')) => {
                word.push(next);
                characters.next();
            }
            (c, _) if c.is_whitespace() => {
                if !word.is_empty() {
                    found.push(std::mem::take(&mut word).into());
                }
            }
            (c, _) => word.push(c),
        }
    }
    if !word.is_empty() {
        found.push(word.into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::prerequisites;
    use std::path::Path;

    #[test]
    fn reads_what_compilers_write() {
        let rule = "a.o: src/a.c src/with\\ space.h \\\n  ../b$$.h c\\#.h\n\nsrc/gone.h:\n";
        let expected = ["src/a.c", "src/with space.h", "../b$.h", "c#.h"].map(Path::new);
        assert_eq!(prerequisites(rule), expected);
        assert_eq!(
            prerequisites("/t/libx.a: /w/src/lib.rs"),
            [Path::new("/w/src/lib.rs")]
        );
        assert!(prerequisites("/t/libx.a:\n").is_empty());
        assert!(prerequisites("").is_empty());
    }
}
