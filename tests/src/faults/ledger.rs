//! Compares every attempt to send with every invocation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Bytes of an entry of a target's journal.
pub const ENTRY: usize = 20;

/// An entry of a target's journal.
pub fn record(id: u64, sender: u64, process: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&id.to_le_bytes());
    entry[8..16].copy_from_slice(&sender.to_le_bytes());
    entry[16..].copy_from_slice(&process.to_le_bytes());
    entry
}

/// An invocation that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// What it was given.
    pub id: u64,
    /// The connection's number on its target.
    pub sender: u64,
    /// The target's process.
    pub process: u32,
}

/// What a target has written down.
///
/// # Errors
/// The file cannot be read, or ends in the middle of an entry.
pub fn journal(path: &Path) -> Result<Vec<Invocation>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let (entries, rest) = bytes.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return Err("the journal ends in the middle of an entry".into());
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    Ok(entries
        .iter()
        .map(|entry| Invocation {
            id: word(&entry[..8]),
            sender: word(&entry[8..16]),
            process: entry[16..].try_into().map(u32::from_le_bytes).unwrap_or_default(),
        })
        .collect())
}

/// How often something that was attempted may have been run, by what its source was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its source was told nothing, and lives.
    Silence,
    /// Exactly once; once or more, if it is idempotent.
    Ran,
    /// Not at all.
    NeverSent,
    /// Once or not at all.
    Unknown,
}

/// What sources attempted and were told.
#[derive(Debug, Default)]
pub struct Ledger {
    verdicts: BTreeMap<u64, (Verdict, String)>,
    /// Sends of which nothing is known yet, by connection.
    open: BTreeMap<String, BTreeSet<u64>>,
}

impl Ledger {
    /// Takes in what a source has said. `ended`: it was killed; what it was not told it will not be told. With
    /// `delivered`, what it had handed to the transport is run all the same.
    pub fn take(&mut self, lines: &[String], ended: bool, delivered: bool) {
        let mut by_id: BTreeMap<u64, String> = BTreeMap::new();
        let mut handed_over = BTreeSet::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let id = || {
                words
                    .get(2)
                    .and_then(|id| id.parse::<u64>().ok())
                    .unwrap_or_default()
            };
            match words[..] {
                ["~", id, _, connection] => {
                    let id = id.parse().unwrap_or_default();
                    by_id.insert(id, connection.into());
                    self.set(id, Verdict::Silence, "attempted");
                }
                ["=", "sent", _, ref outcome @ ..] => match *outcome {
                    ["ok"] => {
                        handed_over.insert(id());
                        let connection = by_id.get(&id()).cloned().unwrap_or_default();
                        self.open.entry(connection).or_default().insert(id());
                    }
                    // It was not sent, and of those before it something is told.
                    ["earlier", ref why @ ..] => {
                        self.set(
                            id(),
                            Verdict::NeverSent,
                            "not sent: of an earlier one there was something to tell",
                        );
                        let connection = by_id.get(&id()).cloned().unwrap_or_default();
                        self.settle(&connection, &why.join(" "));
                    }
                    _ => self.told(id(), &outcome.join(" ")),
                },
                // That the call is on its way is no verdict.
                ["=", "called", _, "ok"] => {
                    handed_over.insert(id());
                }
                ["=", "called" | "done", _, ref outcome @ ..] => self.told(id(), &outcome.join(" ")),
                ["=", "flushed", connection, ref outcome @ ..] => self.settle(connection, &outcome.join(" ")),
                _ => {}
            }
        }
        for (id, _) in by_id {
            match self.verdicts.get(&id) {
                Some((Verdict::Silence, _)) if ended && delivered && handed_over.contains(&id) => {
                    self.set(id, Verdict::Ran, "sent, then its source was killed");
                }
                Some((Verdict::Silence, _)) if ended => {
                    self.set(id, Verdict::Unknown, "attempted, then its source was killed");
                }
                _ => {}
            }
        }
        if ended {
            self.open.clear();
        }
    }

    fn set(&mut self, id: u64, verdict: Verdict, why: &str) {
        self.verdicts.insert(id, (verdict, why.into()));
    }

    fn told(&mut self, id: u64, outcome: &str) {
        let verdict = match outcome {
            "peer-gone" => Verdict::NeverSent,
            "indeterminate" | "timeout" => Verdict::Unknown,
            _ if outcome.starts_with("executed ") => Verdict::Ran,
            _ => Verdict::Silence,
        };
        self.set(id, verdict, outcome);
    }

    /// Of all sends over a connection something is known.
    fn settle(&mut self, connection: &str, outcome: &str) {
        let verdict = match outcome {
            "ok" => Verdict::Ran,
            // The report is of one of them, and says of none that it was run.
            "indeterminate" | "peer-gone" => Verdict::Unknown,
            _ => return,
        };
        for id in self.open.remove(connection).unwrap_or_default() {
            self.set(id, verdict, &format!("sent; later: {outcome}"));
        }
    }

    /// Compares with what was run; `repeatable` says what may have run twice.
    ///
    /// # Errors
    /// Everything that does not agree.
    pub fn compare(&self, ran: &[Invocation], repeatable: impl Fn(u64) -> bool) -> Result<(), String> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for invocation in ran {
            *counts.entry(invocation.id).or_default() += 1;
        }
        let mut wrong = Vec::new();
        for (&id, (verdict, why)) in &self.verdicts {
            let count = counts.remove(&id).unwrap_or_default();
            // Sent again once, if at all.
            let most = if repeatable(id) { 2 } else { 1 };
            let fits = match verdict {
                Verdict::Silence => false,
                Verdict::Ran => (1..=most).contains(&count),
                Verdict::NeverSent => count == 0,
                Verdict::Unknown => count <= most,
            };
            if !fits {
                wrong.push(format!("{id} ran {count} times; its source was told: {why}"));
            }
        }
        wrong.extend(
            counts
                .iter()
                .map(|(id, count)| format!("{id} ran {count} times; no source sent it")),
        );
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Invocation, Ledger};

    fn compare(lines: &[&str], ended: bool, ran: &[u64]) -> Result<(), String> {
        let mut ledger = Ledger::default();
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        ledger.take(&lines, ended, true);
        let (sender, process) = (1, 1);
        let ran: Vec<_> = ran.iter().map(|&id| Invocation { id, sender, process }).collect();
        ledger.compare(&ran, |id| id >= 100)
    }

    #[test]
    fn what_is_lost_silently_and_what_runs_twice_is_found() {
        let call = ["~ 1 call main", "= called 1 ok", "= done 1 executed 4"];
        compare(&call, false, &[1]).unwrap();
        compare(&call, false, &[]).unwrap_err();
        compare(&call, false, &[1, 1]).unwrap_err();
        compare(&call, false, &[1, 2]).unwrap_err();
        compare(&call[..2], false, &[1]).unwrap_err();
        compare(&call[..2], true, &[1]).unwrap();
        compare(&call[..2], true, &[]).unwrap_err();
        compare(&call[..1], true, &[]).unwrap();
        compare(&call[..1], true, &[1]).unwrap();
        let gone = ["~ 1 call main", "= called 1 peer-gone"];
        compare(&gone, false, &[]).unwrap();
        compare(&gone, false, &[1]).unwrap_err();
        let again = ["~ 100 call main", "= called 100 ok", "= done 100 executed 1"];
        compare(&again, false, &[100, 100]).unwrap();
        compare(&again, false, &[100, 100, 100]).unwrap_err();
    }

    #[test]
    fn sends_are_known_by_what_comes_behind_them() {
        let sent = [
            "~ 1 send main",
            "= sent 1 ok",
            "~ 2 send main",
            "= sent 2 earlier indeterminate",
            "= flushed main ok",
        ];
        compare(&sent[..2], false, &[1]).unwrap_err();
        compare(&sent[..2], true, &[1]).unwrap();
        compare(&sent[..2], true, &[]).unwrap_err();
        compare(&sent, false, &[1]).unwrap();
        compare(&sent, false, &[]).unwrap();
        compare(&sent, false, &[1, 2]).unwrap_err();
        let flushed = ["~ 1 send main", "= sent 1 ok", "= flushed main ok"];
        compare(&flushed, false, &[1]).unwrap();
        compare(&flushed, false, &[]).unwrap_err();
    }
}
