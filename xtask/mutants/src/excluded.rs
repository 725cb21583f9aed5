//! The mutants that are never drawn: `excluded.txt`.

use crate::list::Mutant;

/// Lines of the list.
const LIST: &str = include_str!("../excluded.txt");

/// A line of the list: `PATTERN # REASON`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excluded {
    /// Parts of a name without line and column, in their order; `*` separates them.
    parts: Vec<String>,
    line: usize,
}

impl Excluded {
    fn matches(&self, mutant: &Mutant) -> bool {
        let name = mutant.lasting_name();
        let mut rest = name.as_str();
        let found = self
            .parts
            .iter()
            .enumerate()
            .all(|(index, part)| match rest.find(part.as_str()) {
                Some(at) if index > 0 || at == 0 => {
                    rest = &rest[at + part.len()..];
                    true
                }
                _ => false,
            });
        found && (rest.is_empty() || self.parts.last().is_some_and(String::is_empty))
    }
}

/// All lines of the list, each of which must have a reason.
pub(crate) fn list() -> Result<Vec<Excluded>, String> {
    parse(LIST)
}

fn parse(text: &str) -> Result<Vec<Excluded>, String> {
    let mut list = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(" # ") {
            Some((pattern, reason)) if !reason.trim().is_empty() => list.push(Excluded {
                parts: pattern.trim().split('*').map(str::to_owned).collect(),
                line: line_number,
            }),
            _ => {
                return Err(format!(
                    "xtask/mutants/excluded.txt:{line_number}: no ` # ` and a reason"
                ));
            }
        }
    }
    Ok(list)
}

/// Separates the mutants that are drawn from those that are excluded. A line for the files of this area that excludes nothing is an error.
pub(crate) fn split(
    mutants: Vec<Mutant>,
    is_here: impl Fn(&str) -> bool,
) -> Result<(Vec<Mutant>, usize), String> {
    let list = list()?;
    let mut used = vec![false; list.len()];
    let before = mutants.len();
    let kept: Vec<Mutant> = mutants
        .into_iter()
        .filter(|mutant| {
            let found = list.iter().position(|line| line.matches(mutant));
            if let Some(found) = found {
                used[found] = true;
            }
            found.is_none()
        })
        .collect();
    let stale: Vec<String> = list
        .iter()
        .zip(&used)
        .filter(|(line, used)| !**used && is_here(&line.parts[0]))
        .map(|(line, _)| format!("xtask/mutants/excluded.txt:{}: excludes no mutant", line.line))
        .collect();
    if !stale.is_empty() {
        // Another line may exclude the same mutants first; that is an error of the list, too.
        return Err(stale.join("\n"));
    }
    let excluded = before - kept.len();
    Ok((kept, excluded))
}

#[cfg(test)]
mod tests {
    use super::{list, parse};
    use crate::list::{Genre, Mutant, Position, Span};

    fn mutant(name: &str) -> Mutant {
        let at = Position { line: 1, column: 1 };
        Mutant {
            file: "a/src/b.rs".into(),
            genre: Genre::Other,
            name: name.into(),
            replacement: String::new(),
            span: Span { start: at, end: at },
        }
    }

    #[test]
    fn a_pattern_is_the_whole_name_with_stars() {
        let mutant = mutant("a/src/b.rs:1:2: replace X::fmt -> R with Ok(())");
        let matches = |pattern: &str| parse(&format!("{pattern} # why")).unwrap()[0].matches(&mutant);
        assert!(matches("a/src/b.rs: replace X::fmt -> R with Ok(())"));
        assert!(matches("a/src/*: replace X::fmt *"));
        assert!(matches("a/*::fmt -> R with Ok(())"));
        assert!(!matches("a/src/b.rs: replace X::fmt"));
        assert!(!matches("src/b.rs*"));
        assert!(!matches("a/src/b.rs: replace X::fmt * -> *"));
    }

    #[test]
    fn each_line_has_a_reason() {
        assert!(parse("a/b.rs: replace x").is_err());
        assert!(parse("a/b.rs: replace x # ").is_err());
        list().unwrap();
    }
}
