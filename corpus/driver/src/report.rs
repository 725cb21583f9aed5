//! The output: a line per case and setting, tables, and totals.

use std::collections::BTreeMap;

use ifunc_build::BuiltIfunc;

use crate::coverage::Coverage;
use crate::settings::{Extent, Setting};

/// The results so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    coverage: Coverage,
    /// Passed cases per setting.
    settings: BTreeMap<String, usize>,
    /// For each feature, the cases that cover it, and whether all their runs passed.
    features: BTreeMap<String, BTreeMap<String, bool>>,
}

impl Report {
    /// Prints the result of a case with one setting: the image, if any, and the number of equal outcomes or
    /// the error.
    pub(crate) fn line<S: AsRef<str>>(
        &mut self,
        name: &str,
        features: &[S],
        setting: &Setting,
        built: Option<&BuiltIfunc>,
        result: Result<usize, String>,
    ) {
        if self.passed + self.failed == 0 {
            println!(
                "{:<22} {:<8} {:<5} {:<8} {:>9}  result",
                "case", "compiler", "level", "", "image"
            );
        }
        let size = built.map_or_else(|| "-".to_owned(), |built| built.image.len().to_string());
        let (well, result) = match result {
            Ok(inputs) => (true, format!("ok, {inputs} inputs")),
            Err(why) => (false, format!("FAILED: {why}")),
        };
        println!(
            "{name:<22} {:<8} {:<5} {:<8} {size:>9}  {result}",
            setting.compiler,
            setting.level_name,
            setting.third()
        );
        *(if well { &mut self.passed } else { &mut self.failed }) += 1;
        *self.settings.entry(setting.to_string()).or_default() += usize::from(well);
        for feature in features {
            let cases = self.features.entry(feature.as_ref().to_owned()).or_default();
            *cases.entry(name.to_owned()).or_insert(true) &= well;
        }
        if let Some(built) = built.filter(|_| well) {
            self.coverage.add(&built.relocations, name, setting);
        }
    }

    /// Errors other than failed cases: settings with fewer passed cases than required. A corpus of which
    /// nothing ran has not passed.
    pub(crate) fn missing(&self, extent: Extent) -> Vec<String> {
        let mut missing = Vec::new();
        for settings in [Setting::rust(), Setting::c()] {
            for (number, setting) in settings.iter().enumerate() {
                let Some(all) = extent.takes_all(number, &settings) else {
                    continue;
                };
                let passed = self.settings.get(&setting.to_string()).copied().unwrap_or(0);
                let least = setting.least(all);
                if passed < least {
                    missing.push(format!("{setting}: {passed} passed, at least {least} required"));
                }
            }
        }
        missing
    }

    /// Prints the tables and the totals.
    pub(crate) fn finish(&self) {
        self.coverage.print();
        println!("\nfeatures covered");
        for (feature, cases) in &self.features {
            let names: Vec<String> = cases
                .iter()
                .map(|(name, well)| {
                    if *well {
                        name.clone()
                    } else {
                        format!("{name} (FAILED)")
                    }
                })
                .collect();
            println!("  {feature:<52} {}", names.join(", "));
        }
        println!("\n{} passed, {} failed", self.passed, self.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with this number of passed cases per setting.
    fn of(cases: impl Fn(&Setting) -> usize) -> Report {
        let mut report = Report::default();
        for setting in Setting::rust().iter().chain(&Setting::c()) {
            for case in 0..cases(setting) {
                report.line(&format!("case {case}"), &[""; 0], setting, None, Ok(1));
            }
        }
        report
    }

    #[test]
    fn an_empty_run_is_no_success() {
        let settings = Setting::rust().len() + Setting::c().len();
        assert_eq!(of(|_| 0).missing(Extent::Usual).len(), settings);
        assert_eq!(of(|_| 100).missing(Extent::Full), [""; 0]);
        let few = of(|setting| setting.least(false));
        let firsts = 2;
        assert_eq!(
            few.missing(Extent::Usual).len(),
            firsts,
            "{:?}",
            few.missing(Extent::Usual)
        );
        assert_eq!(few.missing(Extent::Full).len(), settings);
        // A brief run takes the first setting of each language, and the last one of C.
        assert_eq!(of(|_| 0).missing(Extent::Brief).len(), 3);
        let without_clang = of(|setting| if setting.compiler == "clang" { 0 } else { 100 });
        let missing = without_clang.missing(Extent::Usual);
        assert!(!missing.is_empty() && missing.iter().all(|line| line.starts_with("clang ")));
    }
}
