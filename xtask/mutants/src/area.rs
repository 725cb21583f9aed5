//! Sources, and the tests that must find what is wrong with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::build::{self, Beside, Diagnostic, Program};
use crate::list::{Genre, Mutant, list};
use crate::options::Options;
use crate::rewrite::{Lines, Numbered, mutants_at, rewrite};
use crate::score::{Outcome, Score};
use crate::tests_of::Ended;
use crate::tree::Tree;
use crate::{excluded, root, sample, support};

/// Sources, and the package whose tests must find what is wrong with them.
pub(crate) struct Area {
    pub(crate) name: &'static str,
    package: &'static str,
    /// What `cargo mutants` lists: the package, or these files.
    files: Option<&'static str>,
    /// What every file's path begins with.
    folder: &'static str,
    root: &'static str,
    build: &'static [&'static str],
    /// What else finds its mutants with every commit.
    beside: Option<Beside>,
    /// Tests of a package above it, for the mutants that its own miss: of these tests those that reach the mutant.
    above: Option<&'static [&'static str]>,
    /// Each test runs once by itself and records which mutants it reaches; a mutant is tried with those tests alone. Without it the
    /// whole set runs, in a second: sandboxed processes, which have no environment, cannot record.
    by_reach: bool,
}

const AREAS: [Area; 4] = [
    Area {
        name: "ifunc-abi",
        package: "ifunc-abi",
        files: None,
        folder: "ifunc-abi/src/",
        root: "ifunc-abi/src/lib.rs",
        // Its tests make images, which takes `alloc`.
        build: &["--package", "ifunc-abi", "--all-features", "--lib"],
        beside: None,
        above: None,
        by_reach: false,
    },
    Area {
        name: "ifunc-proto",
        package: "ifunc-proto",
        files: None,
        folder: "ifunc-proto/src/",
        root: "ifunc-proto/src/lib.rs",
        build: &["--package", "ifunc-proto", "--lib", "--test", "connection"],
        // Half of what the commit tier runs.
        beside: Some(Beside {
            package: "ifunc-simulate",
            args: &["--seeds", "2000"],
        }),
        above: Some(&["--package", "ifunc-rt", "--features", "tls", "--lib"]),
        by_reach: false,
    },
    Area {
        name: "ifunc-exec",
        package: "ifunc-exec",
        files: None,
        folder: "ifunc-exec/src/",
        root: "ifunc-exec/src/lib.rs",
        build: &[
            "--package",
            "ifunc-exec",
            "--lib",
            "--test",
            "it",
            "--bin",
            "ifunc-runner",
        ],
        beside: None,
        above: Some(&["--package", "ifunc-rt", "--features", "tls", "--lib"]),
        by_reach: false,
    },
    Area {
        name: "transport",
        package: "ifunc-rt",
        files: Some("ifunc-rt/src/transport/**"),
        folder: "ifunc-rt/src/transport/",
        root: "ifunc-rt/src/lib.rs",
        build: &["--package", "ifunc-rt", "--features", "tls", "--lib"],
        beside: None,
        above: None,
        by_reach: true,
    },
];

pub(crate) fn chosen(only: &[String]) -> Result<Vec<&'static Area>, String> {
    if let Some(unknown) = only
        .iter()
        .find(|only| AREAS.iter().all(|area| area.name != **only))
    {
        let names = AREAS.map(|area| area.name).join(", ");
        return Err(format!(
            "there is no area `{unknown}`\nhelp: it is one of {names}"
        ));
    }
    let is_chosen = |area: &&Area| only.is_empty() || only.iter().any(|only| only == area.name);
    Ok(AREAS.iter().filter(is_chosen).collect())
}

/// Shortest time after which a run has hung, and the factor by which it may take longer than without a mutant.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
const SLOWER: u32 = 4;
/// Tests up to this length run before the longer ones.
const SHORT: Duration = Duration::from_millis(300);
/// A mutant is tried with tests that take no longer together, each by itself. A test that takes a second waits for most of it.
const LONGEST: Duration = Duration::from_secs(20);
/// Runs of tests at a time, where each is told its mutant: most tests wait.
const WORKERS: usize = 3;
/// Builds after which an area is given up: each one names mutants that do not compile.
const BUILDS: usize = 30;

/// A test, and how long it took.
type Test = (usize, String, Duration);

/// What is being tried.
struct Trial<'a> {
    area: &'a Area,
    tree: Tree,
    target: PathBuf,
    active: PathBuf,
    log: PathBuf,
    /// Those that do not compile.
    unviable: HashSet<u32>,
    score: Score,
}

impl Area {
    pub(crate) fn run(&self, options: &Options) -> Result<Score, String> {
        let mutants = list(self.package, self.files)?;
        let all = mutants.len();
        let (mutants, excluded) = excluded::split(mutants, |file| file.starts_with(self.folder))?;
        let named = |mutant: &Mutant| {
            options
                .named
                .as_ref()
                .is_none_or(|part| mutant.name.contains(part))
        };
        let mutants: Vec<Mutant> = mutants.into_iter().filter(named).collect();
        let drawn = match options.sample {
            Some(count) => sample::draw(mutants, count, options.seed),
            None => mutants,
        };
        let scratch = root().join("target/xtask/mutants");
        let active = scratch.join("active");
        let mut trial = Trial {
            area: self,
            tree: Tree::copy(scratch.join("tree"))?,
            target: scratch.join("build"),
            active,
            log: scratch.join(format!("{}.txt", self.name)),
            unviable: HashSet::new(),
            score: Score {
                all,
                excluded,
                ..Score::default()
            },
        };
        trial.activate(support::NONE)?;
        fs::write(&trial.log, "").map_err(|error| format!("{}: {error}", trial.log.display()))?;
        let numbered: Vec<Numbered<'_>> = (1..).zip(&drawn).collect();
        trial.all(&numbered)?;
        Ok(trial.score)
    }
}

impl Trial<'_> {
    fn activate(&self, number: u32) -> Result<(), String> {
        let error = |error| format!("{}: {error}", self.active.display());
        if let Some(folder) = self.active.parent() {
            fs::create_dir_all(folder).map_err(error)?;
        }
        fs::write(&self.active, number.to_string()).map_err(error)
    }

    fn record(&mut self, mutant: &Mutant, outcome: Outcome, why: &str, began: Instant) -> Result<(), String> {
        let seconds = began.elapsed().as_secs_f64();
        self.score.add(outcome);
        self.score.seconds += seconds;
        let line = format!("{outcome:?} {seconds:.1} s: {} ({why})", mutant.name);
        if outcome == Outcome::Missed {
            println!("{line}");
        }
        let error = |error| format!("{}: {error}", self.log.display());
        let mut log = fs::OpenOptions::new()
            .append(true)
            .open(&self.log)
            .map_err(error)?;
        writeln!(log, "{line}").map_err(error)
    }

    fn all(&mut self, mutants: &[Numbered<'_>]) -> Result<(), String> {
        let (programs, placed) = self.build_branches(mutants)?;
        let tests = match self.area.by_reach {
            true => Some(self.reach(&programs)?),
            false => None,
        };
        let whole = self.baseline(&programs, tests.is_some())?;
        let branches: Vec<Numbered<'_>> = mutants
            .iter()
            .copied()
            .filter(|(number, _)| placed.contains(number))
            .collect();
        if let Some(tests) = &tests {
            self.several(&programs, &branches, tests)?;
        }
        let mut missed = Vec::new();
        for &(number, mutant) in branches.iter().filter(|_| tests.is_none()) {
            let began = Instant::now();
            self.activate(number)?;
            let (outcome, why) = self.whole(&programs, whole)?;
            self.activate(support::NONE)?;
            match outcome {
                Outcome::Missed if self.area.above.is_some() => {
                    self.score.seconds += began.elapsed().as_secs_f64();
                    missed.push((number, mutant));
                }
                _ => self.record(mutant, outcome, &why, began)?,
            }
        }
        self.above(&missed)?;
        self.restore(mutants)?;
        let done: HashSet<u32> = placed.into_iter().collect();
        for &(number, mutant) in mutants {
            if !done.contains(&number) && !self.unviable.contains(&number) {
                self.single(mutant, whole)?;
            }
        }
        Ok(())
    }

    /// Tries mutants with the tests that reach them, several at a time: most tests wait.
    fn several(
        &mut self,
        programs: &[Program],
        mutants: &[Numbered<'_>],
        tests: &HashMap<u32, Vec<Test>>,
    ) -> Result<(), String> {
        let waiting = Mutex::new(mutants.iter());
        let trial = Mutex::new(self);
        let worker = || -> Result<(), String> {
            loop {
                let Some(&(number, mutant)) = waiting.lock().expect("no worker panics").next() else {
                    return Ok(());
                };
                let began = Instant::now();
                let tests = tests.get(&number).map_or(&[][..], Vec::as_slice);
                let (outcome, why) = reaching(programs, number, tests)?;
                let mut trial = trial.lock().expect("no worker panics");
                trial.record(mutant, outcome, &why, began)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
        })
    }

    /// Tries mutants that the package's own tests miss with those of the package above it.
    fn above(&mut self, missed: &[Numbered<'_>]) -> Result<(), String> {
        let Some(above) = self.area.above.filter(|_| !missed.is_empty()) else {
            return Ok(());
        };
        let programs = match build::tests(&self.tree.folder, &self.target, above)? {
            Ok(programs) => programs,
            Err(errors) => return Err(errors.into_iter().map(|error| error.text).collect()),
        };
        let tests = self.reach(&programs)?;
        for &(number, mutant) in missed {
            let began = Instant::now();
            self.activate(number)?;
            let (outcome, why) = reaching(&programs, number, tests.get(&number).map_or(&[], Vec::as_slice))?;
            self.activate(support::NONE)?;
            self.record(mutant, outcome, &why, began)?;
        }
        Ok(())
    }

    /// Builds the test programs with all mutants that can be branches. Returns which ones those are.
    fn build_branches(&mut self, mutants: &[Numbered<'_>]) -> Result<(Vec<Program>, HashSet<u32>), String> {
        // The root of another crate, as of a program, has no module to ask.
        let mut kept: Vec<Numbered<'_>> = mutants
            .iter()
            .copied()
            .filter(|(_, mutant)| !mutant.file.ends_with("/main.rs") && !mutant.file.contains("/bin/"))
            .collect();
        for _ in 0..BUILDS {
            let (texts, placed) = self.write_branches(mutants, &kept)?;
            match build::tests(&self.tree.folder, &self.target, self.area.build)? {
                Ok(programs) => return Ok((self.with_beside(programs)?, placed)),
                Err(errors) => {
                    let began = Instant::now();
                    let wrong = blame(&errors, &texts, &kept)?;
                    for &(number, mutant) in &kept {
                        if wrong.get(&number) == Some(&true) {
                            self.unviable.insert(number);
                            self.record(mutant, Outcome::Unviable, "does not compile", began)?;
                        }
                    }
                    kept.retain(|(number, _)| !wrong.contains_key(number));
                }
            }
        }
        Err(format!("{}: the mutants do not compile", self.area.name))
    }

    fn with_beside(&self, mut programs: Vec<Program>) -> Result<Vec<Program>, String> {
        if let Some(beside) = &self.area.beside {
            programs.push(beside.build(&self.tree.folder, &self.target)?);
        }
        Ok(programs)
    }

    fn write_branches(
        &self,
        all: &[Numbered<'_>],
        kept: &[Numbered<'_>],
    ) -> Result<(HashMap<String, String>, HashSet<u32>), String> {
        let count = all.last().map_or(0, |(number, _)| *number as usize);
        let mut of_files: BTreeMap<&str, Vec<Numbered<'_>>> = BTreeMap::new();
        of_files.entry(self.area.root).or_default();
        for (_, mutant) in all {
            of_files.entry(&mutant.file).or_default();
        }
        for &(number, mutant) in kept {
            of_files.entry(&mutant.file).or_default().push((number, mutant));
        }
        let (mut texts, mut placed) = (HashMap::new(), HashSet::new());
        for (file, mutants) in of_files {
            let path = root().join(file);
            let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let rewritten = rewrite(&source, &mutants).map_err(|error| format!("{file}: {error}"))?;
            let text = match file == self.area.root {
                true => support::root_with(&rewritten.text, &self.active, count),
                false => rewritten.text,
            };
            self.tree.write(file, &text)?;
            placed.extend(rewritten.placed);
            texts.insert(file.to_owned(), text);
        }
        Ok((texts, placed))
    }

    fn restore(&self, mutants: &[Numbered<'_>]) -> Result<(), String> {
        self.tree.restore(self.area.root)?;
        mutants
            .iter()
            .try_for_each(|(_, mutant)| self.tree.restore(&mutant.file))
    }

    /// How long all tests take without a mutant. They must pass.
    fn baseline(&self, programs: &[Program], is_recorded: bool) -> Result<Duration, String> {
        if is_recorded {
            return Ok(Duration::from_secs(60));
        }
        let began = Instant::now();
        for program in programs {
            match program.run(&[], None, Duration::from_secs(600))? {
                Ended::Passed => {}
                other => return Err(format!("{}: without a mutant: {other:?}", program.path.display())),
            }
        }
        Ok(began.elapsed())
    }

    fn whole(&self, programs: &[Program], whole: Duration) -> Result<(Outcome, String), String> {
        for program in programs {
            if let Some(found) = found(program.run(&[], None, LEAST_LIMIT + whole * SLOWER)?) {
                return Ok(found);
            }
        }
        Ok((Outcome::Missed, "all tests pass".into()))
    }

    /// Which tests reach which mutants.
    fn reach(&self, programs: &[Program]) -> Result<HashMap<u32, Vec<Test>>, String> {
        self.activate(support::RECORD)?;
        let mut waiting = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            waiting.extend(program.tests()?.into_iter().map(|name| (index, name)));
        }
        let waiting = Mutex::new(waiting);
        let reached = Mutex::new(HashMap::<u32, Vec<Test>>::new());
        let worker = |worker: usize| -> Result<(), String> {
            let record = self.active.with_file_name(format!("reached.{worker}"));
            loop {
                let Some((index, name)) = waiting.lock().expect("no worker panics").pop() else {
                    return Ok(());
                };
                let _ = fs::remove_file(&record);
                let began = Instant::now();
                let ended =
                    programs[index].run(&["--exact", &name], Some(&record), Duration::from_secs(120))?;
                if ended != Ended::Passed {
                    // A test that fails without a mutant finds none.
                    eprintln!("{name}: without a mutant: {ended:?}");
                    continue;
                }
                let took = began.elapsed();
                let numbers = fs::read_to_string(&record).unwrap_or_default();
                let numbers: HashSet<u32> = numbers.lines().filter_map(|line| line.parse().ok()).collect();
                let mut reached = reached.lock().expect("no worker panics");
                for number in numbers {
                    reached
                        .entry(number)
                        .or_default()
                        .push((index, name.clone(), took));
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| scope.spawn(move || worker(number)))
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
        })?;
        self.activate(support::NONE)?;
        reached.into_inner().map_err(|_| "a worker panicked".into())
    }

    /// Compiles a mutant by itself, and runs the tests of its folder, and then all.
    fn single(&mut self, mutant: &Mutant, whole: Duration) -> Result<(), String> {
        let began = Instant::now();
        let path = root().join(&mutant.file);
        let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        self.tree.write(&mutant.file, &replaced(&source, mutant))?;
        let built = build::tests(&self.tree.folder, &self.target, self.area.build)?;
        let (outcome, why) = match built {
            Err(_) => (Outcome::Unviable, "does not compile".to_owned()),
            Ok(programs) if self.area.by_reach => self.of_folder(&programs, mutant, whole)?,
            Ok(programs) => self.whole(&self.with_beside(programs)?, whole)?,
        };
        self.tree.restore(&mutant.file)?;
        self.record(mutant, outcome, &why, began)
    }

    fn of_folder(
        &self,
        programs: &[Program],
        mutant: &Mutant,
        whole: Duration,
    ) -> Result<(Outcome, String), String> {
        let module = mutant.file.split("/src/").nth(1).unwrap_or("");
        let folder: Vec<&str> = module
            .split('/')
            .take(2)
            .map(|part| part.trim_end_matches(".rs"))
            .collect();
        for filter in [folder.join("::"), String::new()] {
            for program in programs {
                if let Some(found) = found(program.run(&[&filter], None, LEAST_LIMIT + whole * SLOWER)?) {
                    return Ok(found);
                }
            }
        }
        Ok((Outcome::Missed, "all tests pass".into()))
    }
}

/// Runs the tests that reach a mutant, the short ones first, and no more of them than take [`LONGEST`].
fn reaching(programs: &[Program], number: u32, tests: &[Test]) -> Result<(Outcome, String), String> {
    if tests.is_empty() {
        return Ok((Outcome::Missed, "no test reaches it".into()));
    }
    let mut tests: Vec<&Test> = tests.iter().collect();
    tests.sort_by_key(|test| test.2);
    let mut left = LONGEST;
    // The first one always runs.
    let count = tests.iter().skip(1).take_while(|test| {
        let fits = test.2 <= left;
        left = left.saturating_sub(test.2);
        fits
    });
    let tests = &tests[..1 + count.count()];
    let short = tests.partition_point(|test| test.2 <= SHORT);
    for part in [&tests[..short], &tests[short..]] {
        for (index, program) in programs.iter().enumerate() {
            let here: Vec<&&Test> = part.iter().filter(|test| test.0 == index).collect();
            if here.is_empty() {
                continue;
            }
            let alone: Duration = here.iter().map(|test| test.2).sum();
            let args: Vec<&str> = std::iter::once("--exact")
                .chain(here.iter().map(|test| test.1.as_str()))
                .collect();
            if let Some(found) =
                found(program.run_with(Some(number), &args, None, LEAST_LIMIT + alone * 2)?)
            {
                return Ok(found);
            }
        }
    }
    Ok((
        Outcome::Missed,
        format!("{} tests that reach it pass", tests.len()),
    ))
}

fn found(ended: Ended) -> Option<(Outcome, String)> {
    match ended {
        Ended::Passed => None,
        Ended::Failed(name) => Some((Outcome::Found, name)),
        Ended::TimedOut => Some((Outcome::Timeout, "a test does not end".into())),
    }
}

/// The source with this mutant alone.
fn replaced(source: &str, mutant: &Mutant) -> String {
    let lines = Lines::new(source);
    let (start, end) = (lines.byte_of(mutant.span.start), lines.byte_of(mutant.span.end));
    let mut rest = &source[end..];
    if mutant.replacement.is_empty() {
        // The comma of a field or of an arm.
        rest = rest.trim_start().strip_prefix(',').unwrap_or(rest);
    }
    [&source[..start], &mutant.replacement, rest].concat()
}

/// The mutants that do not compile: `true` if it is the mutant, `false` if it may compile by itself.
fn blame(
    errors: &[Diagnostic],
    texts: &HashMap<String, String>,
    kept: &[Numbered<'_>],
) -> Result<HashMap<u32, bool>, String> {
    let mut wrong = HashMap::new();
    for error in errors {
        let at = |primary: bool| {
            let spans = error.spans.iter().filter(move |span| span.2 || !primary);
            spans
                .filter_map(|(file, byte, _)| Some(mutants_at(texts.get(file)?, *byte)))
                .flatten()
                .collect::<Vec<u32>>()
        };
        let mut numbers = at(true);
        // The borrow checker may object to two branches where it would accept one; an error elsewhere is of the branches, too.
        let mut is_own = !error.code.starts_with("E05") && !error.code.starts_with("E07");
        if numbers.is_empty() {
            numbers = at(false);
            is_own = false;
        }
        if numbers.is_empty() {
            let in_file = |(_, mutant): &&Numbered<'_>| error.spans.iter().any(|span| span.0 == mutant.file);
            numbers = kept.iter().filter(in_file).map(|(number, _)| *number).collect();
        }
        if numbers.is_empty() {
            return Err(format!(
                "the sources with mutants do not compile:\n{}",
                error.text
            ));
        }
        for number in numbers {
            let mutant = kept
                .iter()
                .find(|(kept, _)| *kept == number)
                .map(|(_, mutant)| mutant);
            // `return` of another iterator than the body's has another type; the iterator alone may be one.
            let is_opaque =
                mutant.is_some_and(|mutant| mutant.genre == Genre::FnValue && mutant.name.contains("impl "));
            let own = is_own && !is_opaque;
            wrong
                .entry(number)
                .and_modify(|known| *known &= own)
                .or_insert(own);
        }
    }
    match wrong.is_empty() {
        true => Err("the sources with mutants do not compile".into()),
        false => Ok(wrong),
    }
}
