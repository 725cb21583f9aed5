//! The Rust cases.

use corpus_case::{Case, World};
use ifunc_build::{BuildOptions, BuiltIfunc, Progress, build_packages};

use crate::outcome::Outcome;
use crate::remote::Remote;
use crate::report::Report;
use crate::settings::{Extent, Setting};
use crate::{Failure, Places, direct};

/// The package that every run builds with every setting, without its features.
const ALWAYS: &str = "corpus-language";
/// The package that only a driver with the feature `all` has cases of: other projects' crates.
const CRATES: &str = "corpus-crates";
/// The package that only a driver with the feature `products` has cases of, for the first setting: the release profile.
const PRODUCTS: &str = "corpus-products";

/// Builds and runs the Rust cases: all of this program with the release setting, and either [`ALWAYS`] or all with the other
/// settings that the run takes.
pub(crate) fn run(
    extent: Extent,
    places: &Places,
    inputs: &[Vec<u8>],
    remote: &mut Remote,
    report: &mut Report,
) -> Result<(), Failure> {
    let cases: Vec<Case> = corpus_language::CASES
        .iter()
        .chain(crates())
        .chain(corpus_products::CASES)
        .flat_map(|file| file.iter().copied())
        .collect();
    let expected: Vec<Vec<Outcome>> = cases.iter().map(|case| call(case, inputs)).collect();
    let cases: Vec<(Case, Vec<Outcome>)> = cases.into_iter().zip(expected).collect();
    let products: usize = corpus_products::CASES.iter().map(|file| file.len()).sum();
    let (without_products, _) = cases.split_at(cases.len() - products);
    let settings = Setting::rust();
    for (number, setting) in settings.iter().enumerate() {
        let Some(all) = extent.takes_all(number, &settings) else {
            continue;
        };
        // With every setting, these crates would compile for an hour.
        let has_products = cfg!(feature = "products") && number == 0;
        let taken = if has_products { &cases } else { without_products };
        let mut options = BuildOptions {
            current_dir: Some(places.root.clone()),
            opt_level: Some(setting.level),
            lto: setting.usual,
            packages: vec![ALWAYS.into()],
            no_default_features: !all,
            slices: places.slices(),
            target_dir: Some(places.target.join("rust")),
            locked: true,
            ..BuildOptions::default()
        };
        if all && cfg!(feature = "all") {
            options.packages.push(CRATES.into());
        }
        if has_products {
            options.packages.push(PRODUCTS.into());
            options.features = vec![format!("{PRODUCTS}/all")];
        }
        let mut diagnostics = Diagnostics::default();
        let built = match build_packages(&options, &mut diagnostics) {
            Ok(built) => built,
            Err(error) => {
                println!("{}{error}", diagnostics.0);
                let why = "the packages do not build";
                for (case, _) in taken.iter().filter(|_| all) {
                    report.line(case.name, case.features, setting, None, Err(why.into()));
                }
                if !all {
                    report.line(ALWAYS, &[""; 0], setting, None, Err(why.into()));
                }
                continue;
            }
        };
        run_setting(all, setting, taken, &built, inputs, remote, report)?;
    }
    Ok(())
}

fn run_setting(
    all: bool,
    setting: &Setting,
    cases: &[(Case, Vec<Outcome>)],
    built: &[BuiltIfunc],
    inputs: &[Vec<u8>],
    remote: &mut Remote,
    report: &mut Report,
) -> Result<(), Failure> {
    let world = built.iter().find(|built| built.name == "take_world");
    remote.read_world_with(&world.ok_or("no ifunc `take_world` was built")?.path)?;
    for (case, expected) in cases {
        let Some(built) = built.iter().find(|built| built.name == case.name) else {
            if all {
                let why = "no image was built".into();
                report.line(case.name, case.features, setting, None, Err(why));
            }
            continue;
        };
        let result = compare(built, inputs, expected, remote);
        report.line(case.name, case.features, setting, Some(built), result);
    }
    Ok(())
}

/// The cases of [`CRATES`].
fn crates() -> &'static [&'static [Case]] {
    #[cfg(feature = "all")]
    let cases = corpus_crates::CASES;
    #[cfg(not(feature = "all"))]
    let cases = &[];
    cases
}

/// The outcomes of a case called directly.
fn call(case: &Case, inputs: &[Vec<u8>]) -> Vec<Outcome> {
    let mut world = World::new();
    inputs
        .iter()
        .map(|input| direct::rust(case.run, input, &mut world))
        .collect()
}

/// Runs a case remotely with each input and compares. Returns the number of inputs.
pub(crate) fn compare(
    built: &BuiltIfunc,
    inputs: &[Vec<u8>],
    expected: &[Outcome],
    remote: &mut Remote,
) -> Result<usize, String> {
    let mut sent = remote.load(&built.path).map_err(|error| error.to_string())?;
    for (number, (input, expected)) in inputs.iter().zip(expected).enumerate() {
        let outcome = remote.run(&mut sent, input);
        if let Some(difference) = outcome.difference(expected) {
            return Err(format!("input {number} of {} bytes: {difference}", input.len()));
        }
    }
    Ok(inputs.len())
}

/// The compiler's messages, shown only when a build fails.
#[derive(Debug, Default)]
struct Diagnostics(String);

impl Progress for Diagnostics {
    fn diagnostic(&mut self, rendered: &str) {
        self.0.push_str(rendered);
    }
}
