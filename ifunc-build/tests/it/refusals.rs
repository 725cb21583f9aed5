//! Builds that are refused before anything is compiled but a small C file: each error has its variant, and says what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::files::Files;
use crate::common::workspace::{DEPENDS, Workspace};
use ifunc_build::script::{Images, ScriptError};
use ifunc_build::{
    BuildError, BuildOptions, COptions, LibraryError, Quiet, View, build_c, build_packages, check_c,
    expand_package, read_library,
};

/// Asserts that a message has these parts.
#[track_caller]
fn says(error: &dyn std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

const EMPTY: &str = "#![no_std]\n";

/// Two ifunc packages, one of which has a feature and an example, and a program.
fn workspace() -> Workspace {
    let workspace = Workspace::new(&["one", "two", "app"]);
    let one = workspace.package("one", &format!("{DEPENDS}\n[features]\nfast = []\n"), EMPTY);
    fs::create_dir(one.join("examples")).unwrap();
    fs::write(one.join("examples/sorts.rs"), EMPTY).unwrap();
    workspace.package("two", DEPENDS, EMPTY);
    workspace.package("app", "", "");
    workspace
}

#[test]
fn what_a_workspace_does_not_have_is_refused() {
    let workspace = workspace();
    let refused = |change: &dyn Fn(&mut BuildOptions)| {
        let mut options = workspace.options();
        change(&mut options);
        build_packages(&options, &mut Quiet).unwrap_err()
    };

    let error = refused(&|options| options.packages = vec!["three".into()]);
    assert!(
        matches!(&error, BuildError::UnknownPackage { name, .. } if name == "three"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`three` is not a member of this workspace",
            "help: the ifunc packages are: `one`, `two`",
        ],
    );

    let error = refused(&|options| options.packages = vec!["app".into()]);
    assert!(
        matches!(&error, BuildError::NotAnIfuncPackage { name, .. } if name == "app"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`app` holds no ifuncs: it does not depend on `ifunc`",
            "help: the ifunc packages are",
        ],
    );

    let error = refused(&|options| options.features = vec!["slow".into()]);
    assert!(
        matches!(&error, BuildError::UnknownFeature { feature, .. } if feature == "slow"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "has the feature `slow`",
            "help: package `one` has `fast`; package `two` has none",
        ],
    );

    let error = refused(&|options| options.examples = vec!["walks".into()]);
    assert!(
        matches!(&error, BuildError::UnknownExample { name, .. } if name == "walks"),
        "{error:?}"
    );
    says(&error, &["example `walks` not found", "help: there are: `sorts`"]);

    let error = refused(&|options| options.manifest_path = Some("/no/such/Cargo.toml".into()));
    assert!(matches!(error, BuildError::Metadata(_)), "{error:?}");
    says(&error, &["`cargo metadata` failed: ", "/no/such/Cargo.toml"]);

    let error = expand_package(&workspace.options(), View::Host, &mut Quiet).unwrap_err();
    assert!(
        matches!(&error, BuildError::NotOnePackage { known } if known.len() == 2),
        "{error:?}"
    );
    says(
        &error,
        &[
            "expected one ifunc package, found 2",
            "help: choose one with `-p` `one`, `two`",
        ],
    );
}

#[test]
fn settings_of_a_package_that_cannot_be_are_refused() {
    let workspace = Workspace::new(&["set"]);
    let set = |setting: &str| {
        let manifest = format!("{DEPENDS}\n[package.metadata.ifunc]\n{setting}\n");
        workspace.package("set", &manifest, EMPTY);
        workspace.build().unwrap_err()
    };
    let error = set("panic = \"loud\"");
    assert!(
        matches!(&error, BuildError::Manifest { package, .. } if package == "set"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`[package.metadata.ifunc]` of package `set`",
            "is not one of \"message\"",
        ],
    );
    let error = set("needed = [\"z\"]");
    assert!(matches!(error, BuildError::Manifest { .. }), "{error:?}");
    says(&error, &["package `set`", "`z` cannot name a shared library"]);
}

const ENTRY: &str = "#include <stddef.h>
size_t NAME_payload_bound(const void *args, size_t n) { return n; }
int NAME_payload_init(const void *args, size_t n, void *payload, size_t *size) { *size = 0; return 0; }
";

/// A file with one ifunc, whose `main` has this body.
fn entry(name: &str, body: &str) -> String {
    ENTRY.replace("NAME", name)
        + &format!("void {name}_main(void *payload, size_t n, void *target) {{ {body} }}\n")
}

#[test]
fn c_files_that_cannot_be_built_are_refused() {
    let files = Files::new(&[
        ("fine.c", &entry("fine", "")),
        ("again.c", &entry("fine", "")),
        ("wrong.c", &entry("wrong", "nothing_declares_this;")),
        ("half.c", &ENTRY.replace("NAME", "half")),
        (
            "local.c",
            &entry("local", "static __thread int count; *(int *)target = count++;"),
        ),
        ("text.o", "no object"),
    ]);
    let refused_with = |names: &[&str], options: &COptions| {
        let paths: Vec<PathBuf> = names.iter().map(|name| files.path(name)).collect();
        build_c(&paths, options, &mut Quiet).unwrap_err()
    };
    let refused = |names: &[&str]| refused_with(names, &files.options());

    let error = refused(&["wrong.c"]);
    assert!(matches!(error, BuildError::CompileC { .. }), "{error:?}");
    says(
        &error,
        &[
            "could not compile `",
            "wrong.c` with `cc`",
            "nothing_declares_this",
        ],
    );
    let error = refused(&["half.c"]);
    assert!(matches!(error, BuildError::CIfunc { .. }), "{error:?}");
    says(&error, &["half.c`: ", "`half_main` is not", "help: "]);
    let error = refused(&["fine.c", "again.c"]);
    assert!(
        matches!(&error, BuildError::DuplicateName { name, .. } if name == "fine"),
        "{error:?}"
    );
    says(
        &error,
        &["two ifuncs are named `fine`", "fine.c`", "again.c`", "help: "],
    );
    let error = refused(&["local.c"]);
    assert!(
        matches!(&error, BuildError::Link { errors } if errors.len() == 1),
        "{error:?}"
    );
    says(
        &error,
        &[
            "cannot link the image of `local`: 1 reason",
            "thread-local variable",
            "help: ",
        ],
    );
    let checked = check_c(&[files.path("text.o")], &files.options(), &mut Quiet);
    let [error] = &checked.errors[..] else {
        panic!("{checked:?}")
    };
    assert!(matches!(error, BuildError::Input(_)), "{error:?}");
    says(error, &["text.o"]);
    let error = refused(&["absent.c"]);
    assert!(
        matches!(error, BuildError::Io { action: "read", .. }),
        "{error:?}"
    );
    says(&error, &["cannot read `", "absent.c`: No such file"]);

    let with = |change: &dyn Fn(&mut COptions)| {
        let mut options = files.options();
        change(&mut options);
        refused_with(&["fine.c"], &options)
    };
    let error = with(&|options| options.compiler = Some("/no/such/cc".into()));
    assert!(matches!(error, BuildError::Spawn { .. }), "{error:?}");
    says(
        &error,
        &[
            "cannot run `/no/such/cc`: No such file",
            "help: a C compiler is needed",
        ],
    );
    let error = with(&|options| options.cflags = vec!["-maes".into()]);
    assert!(
        matches!(&error, BuildError::CpuFeatures { nearest, .. } if nearest == "x86-64"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`-maes` enables CPU features of no x86-64 level",
            "help: `-march=x86-64` is the nearest that an image can state",
        ],
    );
    let error = with(&|options| options.needed = vec!["z".into()]);
    assert!(
        matches!(&error, BuildError::Needed { soname, .. } if soname == "z"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`z` cannot name a shared library",
            "help: give its soname, such as `libz.so.1`",
        ],
    );
    let error = with(&|options| options.link_args = vec!["-lnowhere".into()]);
    assert!(matches!(error, BuildError::LinkShared { .. }), "{error:?}");
    says(
        &error,
        &["could not link the library `fine.so` with `cc`", "nowhere"],
    );
}

#[test]
fn files_that_are_no_libraries_are_refused() {
    let files = Files::new(&[("text.so", "not ELF"), ("plain.c", "int x;")]);
    let error = read_library(files.path("text.so")).unwrap_err();
    assert!(matches!(error, LibraryError::NotElf { .. }), "{error:?}");
    says(&error, &["text.so` is not an ELF file"]);
    let error = read_library(files.path("absent.so")).unwrap_err();
    assert!(matches!(error, LibraryError::Io { .. }), "{error:?}");
    says(&error, &["cannot read `", "absent.so`: No such file"]);
    let plain = files.path("plain.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-o"]).arg(&plain).arg(files.path("plain.c"));
    assert!(cc.status().unwrap().success());
    let error = read_library(plain).unwrap_err();
    assert!(matches!(error, LibraryError::NoImage { .. }), "{error:?}");
    says(&error, &["plain.so` holds no image"]);
}

/// The folder of the workspace of a build script, in the process that stands for it.
const SCRIPT: &str = "IFUNC_TEST_SCRIPT";

#[test]
fn build_scripts_that_cannot_build_say_why() {
    // A test is no build script.
    let error = Images::new().try_build().unwrap_err();
    assert!(matches!(error, ScriptError::NotAScript { .. }), "{error:?}");
    says(
        &error,
        &[
            "is not set: this is not a build script",
            "help: call it in the `main`",
        ],
    );

    let workspace = workspace();
    let depends =
        "[dependencies]\none = { path = \"../one\" }\nremote = \"1\"\nplain = { path = \"../plain\" }\n";
    workspace.package("app", depends, "");
    workspace.package("plain", "", "");
    workspace.package("lonely", "", "");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["refusals::script", "--exact", "--ignored", "--nocapture"])
        .env(SCRIPT, workspace.dir.path())
        .env("CARGO_PKG_NAME", "app")
        .env("CARGO_MANIFEST_DIR", workspace.dir.path().join("app"))
        .env("OUT_DIR", workspace.dir.path().join("out"))
        .env("CARGO_NET_OFFLINE", "true")
        .envs(["TARGET", "HOST"].map(|name| (name, "x86_64-unknown-linux-gnu")))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "role: the build script of the other test"]
fn script() {
    let Some(folder) = std::env::var_os(SCRIPT) else {
        return;
    };
    let folder = Path::new(&folder);
    let named = |name: &str| Images::new().package(name).try_build().unwrap_err();

    let error = named("tow");
    assert!(
        matches!(&error, ScriptError::NotADependency { name, .. } if name == "tow"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`app` does not depend on `tow`",
            "help: the ifunc packages that it depends on are: `one`",
        ],
    );
    let error = named("remote");
    assert!(
        matches!(&error, ScriptError::NotAPath { name, .. } if name == "remote"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "takes `remote` from a registry or from git",
            "help: have a copy of it",
        ],
    );
    let error = named("plain");
    assert!(
        matches!(&error, ScriptError::NotAnIfuncPackage { name, .. } if name == "plain"),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`plain` is not an ifunc package: it does not depend on `ifunc`",
            "help: an ifunc package has",
        ],
    );

    fs::remove_file(folder.join("one/Cargo.toml")).unwrap();
    let error = named("one");
    assert!(matches!(error, ScriptError::Metadata { .. }), "{error:?}");
    says(
        &error,
        &[
            "`cargo metadata` of `",
            "app/Cargo.toml` failed: ",
            "one/Cargo.toml`",
        ],
    );

    fs::copy(folder.join("lonely/Cargo.toml"), folder.join("app/Cargo.toml")).unwrap();
    let manifest = fs::read_to_string(folder.join("app/Cargo.toml")).unwrap();
    fs::write(
        folder.join("app/Cargo.toml"),
        manifest.replace("lonely", "app") + "[workspace]\n",
    )
    .unwrap();
    let error = Images::new().try_build().unwrap_err();
    assert!(
        matches!(&error, ScriptError::Nothing { package } if package == "app"),
        "{error:?}"
    );
    says(
        &error,
        &["`app` depends on no ifunc package", "help: in its Cargo.toml"],
    );
    let error = Images::new()
        .c_file(folder.join("absent.c"))
        .try_build()
        .unwrap_err();
    assert!(
        matches!(error, ScriptError::Build(BuildError::Io { .. })),
        "{error:?}"
    );
    says(&error, &["cannot read `", "absent.c`"]);

    fs::create_dir_all(folder.join("out/ifunc/target")).unwrap();
    fs::write(folder.join("out/ifunc/target/release"), "").unwrap();
    let error = Images::new().try_build().unwrap_err();
    assert!(
        matches!(error, ScriptError::Io { action: "remove", .. }),
        "{error:?}"
    );
    says(&error, &["cannot remove `", "release`: Not a directory"]);
}
