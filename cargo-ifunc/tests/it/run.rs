//! `run`, with real processes.

use std::ffi::OsStr;
use std::fs;
use std::io::BufRead as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::common::{
    self, Ran, TARGET, c_ifunc, checkout, command, ifunc, listening, lock_target, ran, write,
};

fn run(folder: &Path, args: &[&str]) -> Ran {
    let mut command = command(folder, args);
    // The tests debug nothing that they build.
    ran(command
        .env("CARGO_TARGET_DIR", TARGET)
        .env("CARGO_PROFILE_DEV_DEBUG", "0"))
}

/// Runs an example with the target directory of the checkout, so that later runs find it built, with the dev profile, whose
/// dependencies are those of the tests. One at a time: their programs have the same names.
fn example(args: &[&str]) -> Ran {
    static LOCK: Mutex<()> = Mutex::new(());
    let _lock = LOCK.lock();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    ran(
        command(&checkout(), &[&["run", "--profile", "dev"], args].concat())
            .env("CARGO_TARGET_DIR", target.expect("a folder")),
    )
}

/// Asserts that these lines occur in `out`, in this order.
#[track_caller]
fn in_order(out: &str, wanted: &[&str]) {
    let mut lines = out.lines();
    for wanted in wanted {
        assert!(
            lines.any(|line| line == *wanted),
            "`{wanted}` is missing or out of order in\n{out}"
        );
    }
}

#[test]
fn the_first_example() {
    let out = example(&["01-hello"]).succeeded().out;
    in_order(&out, &["source | add(3) answers 3", "source | add(4) answers 7"]);
    in_order(&out, &["target | the target's counter is 42"]);
    assert!(out.starts_with("target | ifunc: ready shm:01-hello-"), "{out}");

    let out = example(&["01-hello", "--transport", "loopback"]).succeeded().out;
    in_order(
        &out,
        &["  both | add(4) answers 7", "  both | the target's counter is 42"],
    );
    call_from_a_shell();
}

/// The program that the test above has run.
fn call_from_a_shell() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    let address = format!("shm:call-test-{}", std::process::id());
    let program = target.join("ifunc/run/example-01-hello/target");
    let (_target, mut out) = listening(&mut Command::new(program), &address);
    let call = |args: &[&str]| {
        let mut command = command(&checkout(), &[&["call", &address], args].concat());
        ran(command.env("IFUNC_LIB_DIR", target.join("ifunc/release")))
    };
    assert_eq!(call(&["add", "--payload", "5"]).succeeded().out, "5\n");
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let raw = file("raw", &7_u64.to_ne_bytes());
    assert_eq!(call(&["add", &file("json", b" 1 ")]).succeeded().out, "6\n");
    // In C: what it returns is nothing.
    assert_eq!(call(&["multiply", "--raw", &raw]).succeeded().out, "");
    let answer = file("answer", b"an earlier one");
    let output = ["add", "--raw", &raw, "--output", &answer, "--timeout", "60"];
    assert_eq!(call(&output).succeeded().out, "");
    assert_eq!(fs::read(&answer).expect("file"), 49_u64.to_ne_bytes());
    assert_eq!(call(&["report", "--payload", "\"x\""]).succeeded().out, "");
    let mut reported = String::new();
    out.read_line(&mut reported).expect("a line");
    assert_eq!(reported, "x is 49\n");

    call(&["add"]).failed(2, &["`add` takes a payload of type `u64`", "--payload '0'"]);
    call(&["add", "--payload", "\"x\""]).failed(
        1,
        &[
            "at `.`: expected an integer from 0 to 18446744073709551615 (u64), found the string \"x\"",
            "help: ",
        ],
    );
    call(&["add", "--payload", "{"]).failed(1, &["--payload is no JSON"]);
    call(&["multiply", "--payload", "6"])
        .failed(1, &["does not state the type of its payload", "--raw FILE"]);
    call(&["nothing", "--payload", "6"]).failed(1, &["no library `nothing.so`", "help: `cargo ifunc build`"]);
    ifunc(&checkout(), &["call", "loopback:x", "add"]).failed(1, &["its own process only"]);
}

#[test]
#[ignore = "nightly: `cargo xtask test` runs this example over every transport"]
fn the_second_example() {
    let folder = tempfile::tempdir().expect("folder");
    // File lengths around the size of a piece, including zero; a name that is not UTF-8; compressible and
    // incompressible data.
    let piece = 1 << 20;
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(piece + 5)
    .collect();
    let deep = folder.path().join("a/b c/d");
    fs::create_dir_all(&deep).expect("folder");
    fs::write(deep.join("noise"), &noise).expect("file");
    fs::write(deep.join("a piece"), vec![7; piece]).expect("file");
    fs::write(deep.join("empty"), "").expect("file");
    fs::write(
        folder.path().join(OsStr::from_bytes(b"\xff\xfe not UTF-8")),
        "text",
    )
    .expect("file");
    std::os::unix::fs::symlink("a", folder.path().join("link")).expect("link");
    for n in 0..50 {
        fs::write(folder.path().join(format!("text {n}")), "text ".repeat(n * 100)).expect("file");
    }
    let bytes = noise.len() + piece + 4 + (0..50).map(|n| n * 500).sum::<usize>();

    let path = folder.path().to_str().expect("UTF-8");
    for (transport, name) in [("shm", "source"), ("loopback", "  both")] {
        let args = ["02-compressed-insert", "--transport", transport, "--", path];
        let out = example(&args).succeeded().out;
        in_order(
            &out,
            &[
                &format!(
                    "{name} | sent 54 files as 56 records; skipped 1 symbolic links and 0 sockets, pipes and devices"
                ),
                &format!("{name} | verified 54 files, {bytes} bytes"),
            ],
        );
    }
    // With a database path given, the database persists: a second run finds the same files.
    let database = folder.path().with_extension("redb");
    let keep = [
        "02-compressed-insert",
        "--",
        path,
        database.to_str().expect("UTF-8"),
    ];
    example(&keep).succeeded();
    assert!(database.is_file());
    example(&keep).succeeded();
    fs::remove_file(database).expect("file");

    example(&["02-compressed-insert"]).failed(1, &["which files?", "help: "]);
}

#[test]
#[ignore = "nightly: builds four projects; `cargo xtask test` checks the new projects of all languages"]
fn new_projects_run_as_they_are() {
    let _lock = lock_target();
    let folder = tempfile::tempdir().expect("folder");
    let checkout = checkout();
    let checkout = checkout.to_str().expect("UTF-8");
    for (lang, source, target) in [
        ("rust", Some("source | add(300): the counter is 321"), None),
        ("c", None, Some("target | the counter is 321")),
        (
            "mixed",
            Some("source | add(300): the counter is 342"),
            Some("target | the counter is 642"),
        ),
    ] {
        let name = format!("my-{lang}");
        run(folder.path(), &["new", &name, "--lang", lang, "--path", checkout]).succeeded();
        let project = folder.path().join(&name);
        let out = run(&project, &["run"]).succeeded().out;
        for line in [source, target].into_iter().flatten() {
            in_order(&out, &[line]);
        }
    }
    // The last project has a test in Rust and one in C.
    let tests = run(&folder.path().join("my-mixed"), &["test"]).succeeded().out;
    for test in ["adds_to_the_counter", "adds_and_announces"] {
        assert!(tests.contains(&format!("test {test} ... ok")), "{tests}");
    }
    let default = run(folder.path(), &["new", "by-default"]).succeeded();
    assert!(
        default.err.contains("next: cd by-default && cargo ifunc run"),
        "{}",
        default.err
    );
    let project = folder.path().join("by-default");
    assert!(project.join(".git").is_dir());
    run(&project, &["run", "by-default", "--transport", "loopback"]).succeeded();
    // rustfmt changes almost nothing in a new project.
    assert!(
        std::process::Command::new("cargo")
            .args(["fmt", "--check"])
            .current_dir(&project)
            .status()
            .is_ok_and(|s| s.success())
    );
}

#[test]
#[ignore = "nightly: compiles the runtime once more, from a git dependency"]
fn new_from_git() {
    let _lock = lock_target();
    let folder = tempfile::tempdir().expect("folder");
    let clone = folder.path().join("clone");
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .args(args)
            .output()
            .expect("git starts");
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let clone = clone.to_str().expect("UTF-8").to_owned();
    git(&[
        "clone",
        "--quiet",
        "--local",
        checkout().to_str().expect("UTF-8"),
        &clone,
    ]);
    let url = format!("file://{clone}");
    run(folder.path(), &["new", "from-git", "--git", &url]).succeeded();
    let out = run(&folder.path().join("from-git"), &["run"]).succeeded().out;
    in_order(&out, &["source | add(300): the counter is 321"]);
}

#[test]
fn new_refuses() {
    let folder = tempfile::tempdir().expect("folder");
    let new = |args: &[&str]| common::ifunc(folder.path(), &[&["new"], args].concat());
    new(&["1st"]).failed(2, &["`1st` cannot name a project", "help: "]);
    new(&["fn"]).failed(2, &["`fn` cannot name a project"]);
    new(&["target"]).failed(2, &["`target` cannot name a project"]);
    new(&["x", "--path", "."]).failed(2, &["is not a checkout of ifunc"]);
    write(folder.path(), &[("there/file", "")]);
    new(&["there"]).failed(1, &["`there` already exists"]);
    assert!(!folder.path().join("x").exists());
}

/// An SDK for ifuncs in C, which need none.
const SDK: &str = "#![no_std]\n#[cfg(ifunc_image)]\n#[panic_handler]\nfn handle(_: &core::panic::PanicInfo) -> ! { loop {} }\n";

/// A project whose target and source run the given code. They need neither runtime nor SDK: dependencies of these names make a
/// host package and an ifunc package.
fn project(target: &str, source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let bin = |body: &str| format!("fn main() {{ {body} }}\n");
    write(
        folder.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"ifuncs\", \"host\", \"runtime\", \"sdk\"]\n",
            ),
            (
                "runtime/Cargo.toml",
                "[package]\nname = \"ifunc-rt\"\nedition = \"2024\"\n",
            ),
            ("runtime/src/lib.rs", ""),
            (
                "sdk/Cargo.toml",
                "[package]\nname = \"ifunc\"\nedition = \"2024\"\n",
            ),
            ("sdk/src/lib.rs", SDK),
            (
                "ifuncs/Cargo.toml",
                "[package]\nname = \"odd-ifuncs\"\nedition = \"2024\"\n[dependencies]\nifunc = { path = \"../sdk\" }\n",
            ),
            ("ifuncs/src/lib.rs", "#![no_std]\nuse ifunc as _;\n"),
            ("ifuncs/c/odd.c", &c_ifunc("odd")),
            (
                "host/Cargo.toml",
                "[package]\nname = \"odd\"\nedition = \"2024\"\n[dependencies]\n\
                 ifunc-rt = { path = \"../runtime\" }\nodd-ifuncs = { path = \"../ifuncs\" }\n",
            ),
            ("host/src/lib.rs", ""),
            ("host/src/bin/target.rs", &bin(target)),
            ("host/src/bin/source.rs", &bin(source)),
            ("host/src/bin/both.rs", &bin("")),
        ],
    );
    folder
}

const READY: &str = "println!(\"ifunc: ready {}\", std::env::var(\"IFUNC_ADDR\").unwrap());";
const FOR_EVER: &str = "loop { std::thread::park() }";

#[test]
fn the_first_failure_is_the_exit_code() {
    let _lock = lock_target();
    let odd = project(&format!("{READY} {FOR_EVER}"), "std::process::exit(7)");
    run(odd.path(), &["run"]).failed(7, &["error: `source` of `odd` failed with exit code 7"]);

    let odd = project(&format!("{READY} std::process::exit(9)"), FOR_EVER);
    run(odd.path(), &["run"]).failed(9, &["error: `target` of `odd` failed with exit code 9"]);

    let odd = project("", "");
    run(odd.path(), &["run"]).failed(1, &["ended without the line `ifunc: ready ADDRESS`"]);
    // Unless it was asked for its options.
    run(odd.path(), &["run", "--", "--help"]).succeeded();

    let odd = project(&format!("{READY} std::process::abort()"), FOR_EVER);
    run(odd.path(), &["run"]).failed(134, &["was ended by SIGABRT (6)"]);
}

#[test]
fn programs_may_have_any_names() {
    let _lock = lock_target();
    let odd = project("", "");
    let say = |what: &str| {
        format!("fn main() {{ println!(\"{what} {{}}\", std::env::var(\"IFUNC_LIB_DIR\").is_ok()); }}\n")
    };
    let manifest = |text: &str| {
        let package = "[package]\nname = \"odd\"\nedition = \"2024\"\nautobins = false\n[[bin]]\nname = \"server\"\npath = \"src/bin/target.rs\"\n\
                       [dependencies]\nifunc-rt = { path = \"../runtime\" }\n[package.metadata.ifunc]\n";
        fs::write(odd.path().join("host/Cargo.toml"), format!("{package}{text}\n")).expect("file");
    };
    write(
        odd.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"ifuncs\", \"host\", \"runtime\", \"sdk\", \"clients\"]\n",
            ),
            (
                "clients/Cargo.toml",
                "[package]\nname = \"clients\"\nedition = \"2024\"\n",
            ),
            ("clients/src/bin/client.rs", &say("the client")),
            (
                "host/src/bin/target.rs",
                &format!("fn main() {{ {READY} {FOR_EVER} }}\n"),
            ),
        ],
    );
    // The client is in another package, and nobody depends on the ifuncs.
    manifest("target = \"server\"\nsource = \"client\"");
    let out = run(odd.path(), &["run"]).succeeded().out;
    in_order(&out, &["source | the client true"]);
    run(odd.path(), &["run", "--transport", "loopback"])
        .failed(1, &["no program that is target and source", "both = "]);

    // A target alone runs until it is stopped.
    manifest("target = \"server\"");
    run(odd.path(), &["run", "--timeout", "1"]).failed(1, &["did not finish within 1 second"]);

    manifest("target = \"servant\"");
    run(odd.path(), &["run"]).failed(
        1,
        &[
            "target = \"servant\"` names no binary",
            "help: the package has `server`",
        ],
    );
    manifest("targets = \"server\"\ntarget = \"server\"");
    run(odd.path(), &["run"]).failed(1, &["unknown key `targets`", "`target`, `source`, `both`"]);
}

#[test]
fn a_hang_has_a_name() {
    let _lock = lock_target();
    let odd = project(FOR_EVER, "");
    run(odd.path(), &["run", "--timeout", "1"]).failed(
        1,
        &["`target` of `odd` did not print `ifunc: ready ADDRESS` within 1 second"],
    );

    let odd = project(&format!("{READY} {FOR_EVER}"), FOR_EVER);
    run(odd.path(), &["run", "--timeout", "1"])
        .failed(1, &["`source` of `odd` did not finish within 1 second"]);
}

#[test]
fn arguments_and_environment_reach_both() {
    let _lock = lock_target();
    let say = "println!(\"{:?} {:?}\", std::env::args().skip(1).collect::<Vec<_>>(), \
               std::path::Path::new(&std::env::var(\"IFUNC_LIB_DIR\").unwrap()).join(\"odd.so\").is_file());";
    let odd = project(&format!("{say} {READY} {FOR_EVER}"), say);
    let out = run(odd.path(), &["run", "--", "-a", "b c"]).succeeded().out;
    in_order(&out, &["target | [\"-a\", \"b c\"] true"]);
    in_order(&out, &["source | [\"-a\", \"b c\"] true"]);
}

#[test]
fn nothing_is_left_behind() {
    let _lock = lock_target();
    // Each process has a child that would outlive it.
    let with_child = "let child = std::process::Command::new(\"sleep\").arg(\"600\").spawn().unwrap(); println!(\"child {}\", child.id());";
    let odd = project(&format!("{with_child} {READY} {FOR_EVER}"), with_child);
    let out = run(odd.path(), &["run"]).succeeded().out;
    let children: Vec<&str> = out
        .lines()
        .filter_map(|line| line.split_once("child ").map(|(_, id)| id))
        .collect();
    assert_eq!(children.len(), 2, "{out}");
    for child in &children {
        assert!(!alive(child), "child {child} is alive");
    }

    // The same when the command is interrupted.
    let odd = project(
        &format!("{with_child} {READY} {FOR_EVER}"),
        &format!("{with_child} {FOR_EVER}"),
    );
    let mut command = command(odd.path(), &["run"]);
    let mut us = command
        .env("CARGO_TARGET_DIR", TARGET)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(us.stdout.take().expect("piped")));
    let mut children = Vec::new();
    while children.len() < 2 {
        let line = lines.next().expect("a line").expect("text");
        children.extend(line.split_once("child ").map(|(_, id)| id.to_owned()));
    }
    let pid = rustix::process::Pid::from_child(&us);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(us.wait().expect("it ends").code(), Some(130));
    for child in &children {
        assert!(!alive(child), "child {child} is alive");
    }
}

/// Whether a process with this id runs. A zombie does not run.
fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with(['Z', 'X'])
    })
}
