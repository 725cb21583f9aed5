//! The features that are requested of each package.

use std::collections::{BTreeMap, BTreeSet};

use super::workspace::Package;
use crate::BuildError;

/// The features of each package, by its name.
pub(super) type Features = BTreeMap<String, BTreeSet<String>>;

/// Assigns each feature to the packages that have it. `requested` are arguments in cargo's syntax: names separated by
/// blanks or commas. A feature of one package is not requested of the others.
pub(super) fn assign(requested: &[String], packages: &[&Package]) -> Result<Features, BuildError> {
    let mut features = Features::new();
    let words = requested
        .iter()
        .flat_map(|argument| argument.split([',', ' ', '\t', '\n']))
        .filter(|word| !word.is_empty());
    for word in words {
        let mut found = false;
        for package in packages {
            let name = match word.split_once('/') {
                Some((of, name)) if of == package.name => {
                    Some(name).filter(|n| package.features.contains(*n))
                }
                // A feature of a dependency: `postcard/alloc`. Cargo checks whether the dependency has it.
                Some((of, _)) => {
                    Some(word).filter(|_| package.dependencies.contains(of.trim_end_matches('?')))
                }
                None => Some(word).filter(|word| package.features.contains(*word)),
            };
            if let Some(name) = name {
                features
                    .entry(package.name.clone())
                    .or_default()
                    .insert(name.into());
                found = true;
            }
        }
        if !found {
            return Err(BuildError::UnknownFeature {
                feature: word.into(),
                help: known(packages),
            });
        }
    }
    Ok(features)
}

/// The available features.
fn known(packages: &[&Package]) -> String {
    let lines = packages.iter().map(|package| {
        let names: Vec<String> = package.features.iter().map(|name| format!("`{name}`")).collect();
        match names.is_empty() {
            true => format!("package `{}` has none", package.name),
            false => format!("package `{}` has {}", package.name, names.join(", ")),
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, features: &[&str]) -> Package {
        Package {
            id: cargo_metadata::PackageId { repr: name.into() },
            examples: Vec::new(),
            name: name.into(),
            crate_name: name.into(),
            manifest_path: "Cargo.toml".into(),
            features: features.iter().map(|&f| f.into()).collect(),
            dependencies: ["ifunc".into()].into(),
            panic: "message".into(),
            cpu: crate::Cpu::V1,
            slices: Vec::new(),
            needed: Vec::new(),
            rust_flags: Vec::new(),
            c_flags: Vec::new(),
            link_args: Vec::new(),
        }
    }

    fn assigned(requested: &[&str]) -> Result<Vec<(String, String)>, String> {
        let (one, two) = (package("one", &["a", "b"]), package("two", &["b"]));
        let requested: Vec<String> = requested.iter().map(|&a| a.into()).collect();
        let features = assign(&requested, &[&one, &two]).map_err(|e| e.to_string())?;
        Ok(features
            .into_iter()
            .flat_map(|(package, names)| names.into_iter().map(move |name| (package.clone(), name)))
            .collect())
    }

    #[test]
    fn each_package_gets_what_it_has() {
        let pairs =
            |expected: &[(&str, &str)]| Ok(expected.iter().map(|&(p, f)| (p.into(), f.into())).collect());
        let both = pairs(&[("one", "a"), ("one", "b"), ("two", "b")]);
        assert_eq!(assigned(&["a,b"]), both);
        assert_eq!(assigned(&["a b"]), both);
        assert_eq!(assigned(&["a, b ,", ""]), both);
        assert_eq!(assigned(&["two/b"]), pairs(&[("two", "b")]));
        assert_eq!(
            assigned(&["ifunc/alloc"]),
            pairs(&[("one", "ifunc/alloc"), ("two", "ifunc/alloc")])
        );
    }

    #[test]
    fn an_unknown_feature_is_an_error() {
        for (requested, missing) in [("a,c", "`c`"), ("two/a", "`two/a`"), ("serde/std", "`serde/std`")] {
            let error = assigned(&[requested]).unwrap_err();
            assert!(error.contains(missing), "{error}");
            assert!(
                error.contains("package `one` has `a`, `b`; package `two` has `b`"),
                "{error}"
            );
        }
    }
}
