//! The C cases. For direct calls, the same compiler compiles a source with the same flags, and the system
//! linker links it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use corpus_case::World;
use ifunc_build::{BuiltIfunc, COptions, Quiet, build_c};

use crate::direct::Compiled;
use crate::host::Library;
use crate::outcome::Outcome;
use crate::remote::Remote;
use crate::report::Report;
use crate::settings::{Extent, Setting};
use crate::{Failure, Places, rust};

/// Sources that every run builds with every setting: their code uses the host in most of the possible ways.
const ALWAYS: [&str; 2] = ["c_identity", "c_tables"];

/// A source, with the keys in its first lines.
#[derive(Debug)]
struct Source {
    name: String,
    /// The source and the other files of the case.
    files: Vec<PathBuf>,
    flags: Vec<String>,
    features: Vec<String>,
    /// Why its results are others on each architecture, if they are.
    differs: Option<String>,
}

impl Source {
    /// Parses the comments at the beginning: `/* features: a; b */`, `/* with: FILES */`, `/* cflags: FLAGS
    /// */`, `/* differs: WHY */`.
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut source = Self {
            name,
            files: vec![path.into()],
            flags: Vec::new(),
            features: Vec::new(),
            differs: None,
        };
        for line in text.lines() {
            let Some((key, values)) = line
                .strip_prefix("/* ")
                .and_then(|line| line.strip_suffix(" */")?.split_once(": "))
            else {
                break;
            };
            match key {
                "features" => source.features = values.split("; ").map(Into::into).collect(),
                "differs" => source.differs = Some(values.into()),
                "cflags" => source.flags = values.split(' ').map(Into::into).collect(),
                "with" => source
                    .files
                    .extend(values.split(' ').map(|file| path.with_file_name(file))),
                _ => return Err(format!("`{}`: unknown key `{key}`", path.display()).into()),
            }
        }
        if source.features.is_empty() {
            return Err(format!(
                "`{}` does not state what it covers: `/* features: .. */`",
                path.display()
            )
            .into());
        }
        Ok(source)
    }

    /// All sources, by name.
    fn all(places: &Places) -> Result<Vec<Self>, Failure> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(places.root.join("corpus/c"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "c") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn flags(&self, setting: &Setting, places: &Places) -> Vec<String> {
        let mut flags = vec![format!("-{}", setting.level_name)];
        if !setting.usual {
            flags.push("-fno-plt".into());
        }
        if places.other.is_some() {
            // Where there is an instruction for it, compilers multiply and add without rounding between, unless they must not.
            flags.push("-ffp-contract=off".into());
        }
        flags.push(format!("-I{}", places.root.join("corpus/c").display()));
        flags.extend(self.flags.iter().cloned());
        flags
    }
}

/// Builds and runs the C cases: all with the release setting, and either [`ALWAYS`] or all with the other
/// settings.
pub(crate) fn run(
    extent: Extent,
    places: &Places,
    host: &Library,
    inputs: &[Vec<u8>],
    remote: &mut Remote,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut sources = Source::all(places)?;
    if places.other.is_some() {
        sources.retain(|source| {
            if let Some(why) = &source.differs {
                println!("{} is not compared across architectures: {why}", source.name);
            }
            source.differs.is_none()
        });
    }
    let settings = Setting::c();
    for (number, setting) in settings.iter().enumerate() {
        let Some(all) = extent.takes_all(number, &settings) else {
            continue;
        };
        let chosen: Vec<&Source> = sources
            .iter()
            .filter(|source| all || ALWAYS.contains(&&*source.name))
            .collect();
        for (source, built) in chosen.iter().zip(build_all(&chosen, setting, places, host)) {
            let (built, direct) = match built {
                Ok(built) => built,
                Err(error) => {
                    report.line(&source.name, &source.features, setting, None, Err(error));
                    continue;
                }
            };
            let direct = Compiled::open(&direct)?;
            for built in &built {
                let expected = call(&direct, &built.name, inputs)?;
                let result = rust::compare(built, inputs, &expected, remote);
                report.line(&built.name, &source.features, setting, Some(built), result);
            }
        }
    }
    Ok(())
}

fn call(direct: &Compiled, name: &str, inputs: &[Vec<u8>]) -> Result<Vec<Outcome>, Failure> {
    let mut world = World::new();
    inputs
        .iter()
        .map(|input| direct.call(name, input, &mut world))
        .collect()
}

/// The ifuncs of a source and the library for direct calls, or the build error.
type Built = Result<(Vec<BuiltIfunc>, PathBuf), String>;

/// Builds sources, one per processor at a time.
fn build_all(sources: &[&Source], setting: &Setting, places: &Places, host: &Library) -> Vec<Built> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(0..sources.len());
    let built: Mutex<Vec<Option<Built>>> = Mutex::new(sources.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(number) = next.lock().ok().and_then(|mut next| next.next()) else {
                        return;
                    };
                    let result = build(sources[number], setting, places, host);
                    if let Ok(mut built) = built.lock() {
                        built[number] = Some(result.map_err(|error| error.to_string()));
                    }
                }
            });
        }
    });
    let built = built.into_inner().unwrap_or_default();
    built
        .into_iter()
        .map(|built| built.unwrap_or_else(|| Err("it was not built".into())))
        .collect()
}

fn build(
    source: &Source,
    setting: &Setting,
    places: &Places,
    host: &Library,
) -> Result<(Vec<BuiltIfunc>, PathBuf), Failure> {
    let flags = source.flags(setting, places);
    let options = COptions {
        compiler: Some(setting.compiler.into()),
        slices: places.slices(),
        cflags: flags.clone(),
        target_dir: Some(places.target.join("c").join(&source.name)),
        ..COptions::default()
    };
    let built = build_c(&source.files, &options, &mut Quiet)?;
    let folder = places.target.join("direct");
    std::fs::create_dir_all(&folder)?;
    let library = folder.join(format!("{} {setting}.so", source.name).replace(' ', "-"));
    let output = Command::new(setting.compiler)
        .args(["-fPIC", "-shared", "-U_FORTIFY_SOURCE", "-o"])
        .arg(&library)
        .args(&flags)
        .args(&source.files)
        .arg(&host.path)
        .arg("-lm")
        .output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "`{}` cannot link it for direct calls:\n{stderr}",
            setting.compiler
        )
        .into());
    }
    Ok((built, library))
}
