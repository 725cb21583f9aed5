//! Which C compiler compiles for a target triple.

use super::Compiler;
use crate::BuildError;
use crate::triple::{Triple, arch_of_machine, this_machine};

/// A variable that is set.
struct Named {
    variable: String,
    words: String,
}

/// The compiler for a triple: the one that was asked for, or that of the first variable that is set (`CC_TRIPLE`, `TARGET_CC`, `CC`,
/// as in the crate `cc`), or the one of GNU's names. `CC` alone counts only if it can compile for the triple: it may be set for
/// programs of this machine. Clang is told the triple.
pub(super) fn for_triple(asked: Option<&str>, triple: &Triple) -> Result<Compiler, BuildError> {
    let set = |variable: String| {
        let words = std::env::var(&variable).ok()?;
        (!words.trim().is_empty()).then_some(Named { variable, words })
    };
    let named = triple.variables().into_iter().find_map(set);
    choose(asked, named, triple)
}

fn choose(asked: Option<&str>, named: Option<Named>, triple: &Triple) -> Result<Compiler, BuildError> {
    let [variable, ..] = triple.variables().map(|name| name.replace('-', "_"));
    let default = default_of(triple);
    let package = default.trim_end_matches("-gcc");
    let install = format!(
        "a C compiler for `{triple}` is needed: on Debian and Ubuntu `{default}` is in the package `gcc-{package}`; or name one in the environment variable `{variable}`, such as `clang`"
    );
    let compiler = |words: &str| told(Compiler::named(words, &default, install.clone()), triple);
    if let Some(words) = asked {
        return fitting(compiler(words), triple, variable, default);
    }
    match named {
        Some(Named { variable: of, words }) if of == "CC" => {
            let found = compiler(&words);
            // One that cannot run is reported when it is to compile.
            let fits = found.machine().trim().is_empty() || compiles_for(&found, triple);
            Ok(if fits { found } else { compiler("") })
        }
        Some(named) => fitting(compiler(&named.words), triple, variable, default),
        None => Ok(compiler("")),
    }
}

/// Whether these words name a compiler that compiles for every triple.
pub(crate) fn compiles_for_all(words: &str) -> bool {
    Compiler::named(words, "cc", String::new()).is_clang()
}

/// GNU's compiler for a triple: `cc` if that is this machine's.
fn default_of(triple: &Triple) -> String {
    match Triple::of_compiler(&this_machine()).arch() == triple.arch() {
        true => "cc".into(),
        false => format!("{}-gcc", triple.tools()),
    }
}

/// The compiler, with the triple if it is Clang and compiles for another machine.
fn told(compiler: Compiler, triple: &Triple) -> Compiler {
    match !compiles_for(&compiler, triple) && compiler.is_clang() {
        true => compiler.with(format!("--target={}", triple.tools())),
        false => compiler,
    }
}

fn compiles_for(compiler: &Compiler, triple: &Triple) -> bool {
    arch_of_machine(compiler.machine()) == triple.arch()
}

/// The compiler, unless it states another machine. One that cannot run is reported when it is to compile.
fn fitting(
    compiler: Compiler,
    triple: &Triple,
    variable: String,
    default: String,
) -> Result<Compiler, BuildError> {
    let machine = compiler.machine().trim();
    if machine.is_empty() || compiles_for(&compiler, triple) {
        return Ok(compiler);
    }
    Err(BuildError::OtherMachine {
        compiler: compiler.name(),
        machine: machine.into(),
        triple: triple.to_string(),
        variable,
        default,
    })
}
