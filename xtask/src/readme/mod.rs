//! `cargo xtask readme`: every block of README.md, of the README.md of each example, and of the book compiles or runs.
//!
//! | a block of | is |
//! |---|---|
//! | `rust` | compiled: with `#![no_std]` or the word `ifuncs` as a module of a package of ifuncs, else as one of a host (`compile`) |
//! | `c`, `toml` | compiled against `ifunc.h`; read as a manifest |
//! | `sh` | run in the checkout |
//! | `console` | run; what each line after `$ ` prints is compared with the lines after it (`console`) |
//! | any, with `file=PATH` | a file of the page's project (`project`) |
//! | any, with `no_run` | for readers only |

#[cfg(test)]
mod causes;
mod compile;
mod console;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod links;
mod project;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::blocks::{Block, blocks};
use crate::plan::Tier;
use crate::process::{built, status};
use crate::steps::Steps;

/// What `cargo` is in sh blocks of the commit tier: `cargo ifunc` is the command that the tests have built, and `cargo ifunc run`
/// builds programs with the dev profile, as the other parts do. The alias of the checkout is `cargo run`, which would compile the
/// runtime once more, with the features of one package; nightly runs that.
const CARGO: &str = "() {
    case \"$1 ${2-}\" in
        'ifunc run') \"$XTASK_CARGO_IFUNC\" ifunc run --profile dev \"${@:3}\" ;;
        'ifunc '*) \"$XTASK_CARGO_IFUNC\" \"$@\" ;;
        *) command cargo \"$@\" ;;
    esac
}";
const COMMAND: &str = "XTASK_CARGO_IFUNC";

/// A Markdown file whose blocks run.
struct Page {
    /// Its path in the checkout.
    name: String,
    text: String,
}

impl Page {
    fn blocks(&self) -> Vec<Block<'_>> {
        blocks(&self.text)
    }

    /// The name of its modules.
    fn module(&self) -> String {
        let name = self
            .name
            .trim_start_matches("docs/book/src/")
            .trim_end_matches(".md");
        let name = name
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_")
            .to_lowercase();
        format!("page_{name}")
    }

    /// The folder of the project that its blocks make, which its first line names: `<!-- project: prices -->`.
    fn project(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        first.strip_prefix("<!-- project: ")?.strip_suffix(" -->")
    }
}

/// `cargo xtask readme [--here] [--only TEXT]`: compiles the rust blocks. Runs the others in order, each in a shell of its own, in a
/// fresh clone of the commit, or in the checkout.
pub(crate) fn command(options: &[String]) -> ExitCode {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (here, only) = match options[..] {
        [] => (false, ""),
        ["--here"] => (true, ""),
        ["--only", only] => (false, only),
        ["--here", "--only", only] => (true, only),
        _ => {
            eprintln!("error: unknown options\nhelp: cargo xtask readme [--here] [--only TEXT]");
            return ExitCode::from(2);
        }
    };
    let mut steps = Steps::new(Tier::Nightly);
    all(&mut steps, here, only);
    steps.summary()
}

/// A part of both tiers: in the checkout, which is a fresh clone in CI and has been built.
pub(crate) fn here(steps: &mut Steps) {
    all(steps, true, "");
}

/// `only`: a part of the names of the pages.
fn all(steps: &mut Steps, here: bool, only: &str) {
    let clone = match here {
        true => crate::root().to_owned(),
        false => crate::scratch().join("clone"),
    };
    let all_pages = match pages() {
        Ok(pages) => pages,
        Err(why) => {
            steps.step("pages", || Err(why));
            return;
        }
    };
    let pages = all_pages.iter().filter(|page| page.name.contains(only));
    steps.step("rust, C and manifests of the README and the book", || {
        compile::all(&all_pages)
    });
    let is_brief = here && steps.tier() == Tier::Commit;
    let mut is_cloned = here;
    for page in pages {
        if let Some(project) = page.project() {
            match is_brief {
                true => steps.step(&format!("{}, checked", page.name), || {
                    project::check(page, project)
                }),
                false => steps.step(&page.name, || project::run(page, project)),
            };
            continue;
        }
        for block in &page.blocks() {
            if !matches!(block.language(), "sh" | "console") || block.is_only_read() {
                continue;
            }
            is_cloned = is_cloned || steps.step("fresh clone", || fresh_clone(&clone));
            if !is_cloned {
                return;
            }
            steps.step(
                &format!("{}:{} ({})", page.name, block.line, block.language()),
                || {
                    let folder = is_brief.then(|| built(&["cargo-ifunc"])).transpose()?;
                    let command = folder.map(|folder| folder.join("cargo-ifunc"));
                    let shell = Shell {
                        folder: clone.clone(),
                        here,
                        command,
                    };
                    match block.language() {
                        "sh" => status(&mut shell.bash(&block.text)).map(|()| String::new()),
                        _ => console::run(&shell, block),
                    }
                },
            );
        }
    }
}

/// README.md, those of the examples, and the book.
fn pages() -> Result<Vec<Page>, String> {
    let mut names = vec!["README.md".to_owned()];
    let examples = entries("examples")?;
    let examples = examples
        .iter()
        .map(|example| format!("examples/{example}/README.md"));
    names.extend(examples.filter(|name| crate::root().join(name).exists()));
    let chapters = entries(BOOK)?;
    let chapters = chapters.iter().filter(|name| name.ends_with(".md"));
    names.extend(chapters.map(|chapter| format!("{BOOK}/{chapter}")));
    let read = |name: String| match fs::read_to_string(crate::root().join(&name)) {
        Ok(text) => Ok(Page { name, text }),
        Err(why) => Err(format!("{name} cannot be read: {why}")),
    };
    names.into_iter().map(read).collect()
}

/// The chapters' folder.
const BOOK: &str = "docs/book/src";

/// The names of what a folder of the checkout holds, in order.
fn entries(folder: &str) -> Result<Vec<String>, String> {
    let path = crate::root().join(folder);
    let entries = fs::read_dir(&path).map_err(|why| format!("cannot read `{folder}`: {why}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Where blocks run.
struct Shell {
    folder: PathBuf,
    /// In the checkout, not in a clone.
    here: bool,
    /// What `cargo ifunc` is, if not cargo's alias.
    command: Option<PathBuf>,
}

impl Shell {
    /// A shell that runs `text`.
    fn bash(&self, text: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", text])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        // A clone builds with default settings, as its reader does; the checkout as before.
        let kept: &[&str] = match self.here {
            true => &["CARGO_HOME", "CARGO_INCREMENTAL"],
            false => &["CARGO_HOME"],
        };
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|name| name.starts_with("CARGO") && !kept.contains(&name))
            {
                bash.env_remove(name);
            }
        }
        if let Some(command) = &self.command {
            // A function of the shell, as `export -f` passes it on.
            bash.env("BASH_FUNC_cargo%%", CARGO).env(COMMAND, command);
        }
        bash
    }
}

fn fresh_clone(to: &Path) -> Result<String, String> {
    let _ = fs::remove_dir_all(to);
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"])
        .arg(crate::root())
        .arg(to)
        .stdin(Stdio::null());
    status(&mut git).map(|()| "the commit".into())
}
