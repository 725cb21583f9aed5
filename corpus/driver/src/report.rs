//! What is printed: a line per case and setting, tables, and how many passed.

use std::collections::BTreeMap;

use ifunc_build::BuiltIfunc;

use crate::coverage::Coverage;
use crate::settings::Setting;

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    coverage: Coverage,
    /// Feature to the cases that cover it, and whether all of their runs passed.
    features: BTreeMap<String, BTreeMap<String, bool>>,
}

impl Report {
    /// One case, built with one setting: the image, unless there is none, and how many inputs gave the same, or what is
    /// wrong.
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
        for feature in features {
            let cases = self.features.entry(feature.as_ref().to_owned()).or_default();
            *cases.entry(name.to_owned()).or_insert(true) &= well;
        }
        if let Some(built) = built.filter(|_| well) {
            self.coverage.add(&built.relocations, name, setting);
        }
    }

    /// The tables, and how many passed.
    pub(crate) fn finish(&self) {
        self.coverage.print();
        println!("\nwhat the cases are about");
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
