//! How many mutants were found, and what that says of those that were not tried.

/// How one mutant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A test failed.
    Found,
    /// A test did not end: it counts as found.
    Timeout,
    /// All tests passed.
    Missed,
    /// It does not compile, and does not count.
    Unviable,
}

/// What became of the mutants of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// Mutants that there are.
    pub(crate) all: usize,
    /// Those that are never drawn, by the committed list.
    pub(crate) excluded: usize,
    pub(crate) found: usize,
    pub(crate) missed: usize,
    pub(crate) unviable: usize,
    pub(crate) timeouts: usize,
    /// Of all mutants together, without the first build.
    pub(crate) seconds: f64,
}

impl Score {
    pub(crate) const HEAD: &str = "area            all  excluded  tried  found  timeouts  missed  unviable   score  95 % interval  s per mutant";

    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Found => self.found += 1,
            Outcome::Timeout => self.timeouts += 1,
            Outcome::Missed => self.missed += 1,
            Outcome::Unviable => self.unviable += 1,
        }
    }

    fn tried(&self) -> usize {
        self.found + self.timeouts + self.missed + self.unviable
    }

    fn counted(&self) -> usize {
        self.found + self.timeouts + self.missed
    }

    pub(crate) fn percent(&self) -> f64 {
        match self.counted() {
            0 => 100.0,
            counted => 100.0 * (self.found + self.timeouts) as f64 / counted as f64,
        }
    }

    /// The 95 % confidence interval of the share that is found, in percent, by Wilson (1927).
    pub(crate) fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        let counted = self.counted() as f64;
        if counted == 0.0 {
            return (0.0, 100.0);
        }
        let share = self.percent() / 100.0;
        let (square, spread) = (
            Z * Z / counted,
            Z * (share * (1.0 - share) / counted + Z * Z / (4.0 * counted * counted)).sqrt(),
        );
        let end = |sign: f64| 100.0 * (share + square / 2.0 + sign * spread) / (1.0 + square);
        (end(-1.0).max(0.0), end(1.0).min(100.0))
    }

    pub(crate) fn row(&self, name: &str) -> String {
        let (low, high) = self.interval();
        format!(
            "{name:12} {:>6} {:>9} {:>6} {:>6} {:>9} {:>7} {:>9} {:>5.1} % {:>5.1} - {:>5.1} {:>13.1}",
            self.all,
            self.excluded,
            self.tried(),
            self.found,
            self.timeouts,
            self.missed,
            self.unviable,
            self.percent(),
            low,
            high,
            self.seconds / self.tried().max(1) as f64,
        )
    }

    pub(crate) fn line(&self) -> String {
        let counted = self.counted();
        format!("{} of {counted} mutants were found", counted - self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Score};

    #[test]
    fn what_did_not_end_is_found_and_what_does_not_compile_does_not_count() {
        let mut score = Score::default();
        for (outcome, count) in [
            (Outcome::Found, 18),
            (Outcome::Timeout, 1),
            (Outcome::Missed, 1),
            (Outcome::Unviable, 5),
        ] {
            (0..count).for_each(|_| score.add(outcome));
        }
        assert_eq!((score.tried(), score.counted()), (25, 20));
        assert_eq!(score.percent(), 95.0);
    }

    /// Values of Newcombe (1998), method 3, and of the two ends.
    #[test]
    fn the_interval_is_wilsons() {
        let of = |found, missed| {
            let (low, high) = Score {
                found,
                missed,
                ..Score::default()
            }
            .interval();
            (format!("{low:.2}"), format!("{high:.2}"))
        };
        assert_eq!(of(81, 182), ("25.53".into(), "36.62".into()));
        assert_eq!(of(15, 133), ("6.24".into(), "16.05".into()));
        assert_eq!(of(0, 20), ("0.00".into(), "16.11".into()));
        assert_eq!(of(0, 0), ("0.00".into(), "100.00".into()));
    }
}
