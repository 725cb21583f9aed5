//! What gdb shows of injected code, in a process of its own that it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Process, connect, unique_shm};
use ifunc_build::{COptions, Quiet, build_c};
use ifunc_rt::Source;

/// Three functions deep, and from there into the target.
const DEEP: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern void announce(const char *what, size_t len, uint64_t value);

uint64_t t_deep_weights[4] = { 1, 2, 3, 4 };

size_t t_deep_payload_bound(void *args, size_t n) { (void)args; return n; }

int t_deep_payload_init(void *args, size_t n, void *payload, size_t *size)
{
    memcpy(payload, args, n);
    *size = n;
    return 0;
}

__attribute__((noinline)) static uint64_t t_deep_weigh(const uint8_t *bytes, size_t n)
{
    volatile uint8_t room[64];
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        room[i % 64] = bytes[i];
        sum += room[i % 64] * t_deep_weights[i % 4];
    }
    announce("weighed", 7, sum); /* here */
    return sum + room[0];
}

__attribute__((noinline)) static uint64_t t_deep_twice(const uint8_t *bytes, size_t n)
{
    return t_deep_weigh(bytes, n) * 2 + n;
}

void t_deep_main(void *payload, size_t n, void *target)
{
    *(uint64_t *)target += t_deep_twice(payload, n);
}
"#;

/// Why one transport is enough here.
const WHY: &str = "what debuggers and profilers see of code does not depend on how it came";

/// Builds the ifunc of a C file; where it is, and its library.
fn built(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(name);
    std::fs::write(&source, text).unwrap();
    let options = COptions {
        target_dir: Some(folder.path().join("out")),
        ..COptions::default()
    };
    let built = build_c(&[source], &options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
    let path = built[0].path.clone();
    (folder, path)
}

/// gdb, if it is there. In CI it must be.
fn gdb() -> Option<Command> {
    let there = Command::new("gdb").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("CI").is_none(),
            "no gdb: `cargo xtask test` installs it"
        );
        eprintln!("SKIPPED: there is no gdb on this machine");
        return None;
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for setting in [
        "set debuginfod enabled off",
        "set disable-randomization off",
        "set breakpoint pending on",
        "set confirm off",
        "set pagination off",
        "set width 0",
    ] {
        gdb.args(["-ex", setting]);
    }
    Some(gdb)
}

/// Runs the target of these tests in gdb with these commands and switches in its environment, and once it serves, `send`
/// towards it. What gdb said, and the target, up to the line `done`.
fn session(
    switches: &[&str],
    folder: &Path,
    commands: &[&str],
    send: impl FnOnce(&Source),
) -> Option<String> {
    let mut gdb = gdb()?;
    let address = unique_shm(WHY)?;
    gdb.env("IFUNC_ADDR", &address).env("IFUNC_LIB_DIR", folder);
    gdb.env("IFUNC_DEBUG", "gdb");
    gdb.envs(switches.iter().map(|switch| (switch, "1")));
    for command in commands.iter().chain(&["echo \\ndone\\n", "kill"]) {
        gdb.args(["-ex", command]);
    }
    gdb.arg(env!("CARGO_BIN_EXE_e2e-target"));
    let mut process = Process::start(&mut gdb);
    process.wait_for(&format!("ifunc: ready {address}"));
    let source = connect(&address);
    send(&source);
    process.wait_for("done");
    let said = process.said.join("\n");
    println!("{said}");
    Some(said)
}

/// The frames of a backtrace as the names of their functions.
fn frames(said: &str) -> Vec<&str> {
    said.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let name = line.split_whitespace().nth(1).unwrap();
            match name.strip_prefix("0x") {
                Some(_) => line.split_whitespace().nth(3).unwrap(),
                None => name,
            }
        })
        .collect()
}

/// Whether `wanted` are among the names, in this order. Behind a name of Rust's there may be a hash.
fn in_order(names: &[&str], wanted: &[&str]) -> bool {
    let mut names = names.iter();
    wanted
        .iter()
        .all(|wanted| names.any(|name| name.starts_with(wanted)))
}

/// Frames of the host, from the shim that calls the ifunc to the end. They are found for every kind of image.
const HOST: [&str; 3] = ["ifunc_exec_enter", "ifunc_rt::target::poll::<impl", "main"];

#[test]
fn an_image_has_a_name_where_nothing_else_is_known_of_it() {
    let (_folder, path) = built("deep.c", DEEP);
    let empty = tempfile::tempdir().unwrap();
    let said = session(
        &[],
        empty.path(),
        &[
            "break t_deep_main",
            "run",
            "info symbol $pc",
            "echo \\nat its start\\n",
            "backtrace",
            "break std::io::stdio::_print",
            "continue",
            "echo \\nin the host\\n",
            "backtrace",
        ],
        |source| {
            // SAFETY: built above.
            let deep = unsafe { source.load_path(&path) }.unwrap();
            deep.send(b"abc").unwrap();
        },
    );
    let Some(said) = said else { return };
    assert!(said.contains("t_deep_main in section .text of "), "{said}");
    let (_, rest) = said.split_once("at its start").unwrap();
    let (start, host) = rest.split_once("in the host").unwrap();
    let names = frames(start);
    assert_eq!(names[0], "t_deep_main");
    assert!(in_order(&names, &HOST), "{names:?}");
    // Without debug information the image is one frame on the stack.
    let names = frames(host);
    assert!(in_order(&names, &["t_deep_main"]), "{names:?}");
    assert!(in_order(&names, &HOST), "{names:?}");
}

#[test]
fn lines_and_inner_functions_where_the_library_is_found() {
    let (_folder, path) = built("deep.c", DEEP);
    let said = session(
        &[],
        path.parent().unwrap(),
        &[
            "break t_deep_weigh",
            "run",
            "info symbol $pc",
            "info symbol &t_deep_weights",
            "info line *$pc",
            "break std::io::stdio::_print",
            "continue",
            "echo \\nin the host\\n",
            "backtrace",
            "frame function t_deep_weigh",
            "list",
        ],
        |source| {
            // SAFETY: built above.
            let deep = unsafe { source.load_path(&path) }.unwrap();
            deep.send(b"abc").unwrap();
        },
    );
    let Some(said) = said else { return };
    assert!(said.contains("t_deep_weigh in section .text of "), "{said}");
    assert!(said.contains("t_deep_weights in section .data of "), "{said}");
    // A function begins at its name or at its brace, as compilers like it.
    let line = 1 + DEEP
        .lines()
        .position(|line| line.contains("t_deep_weigh(const"))
        .unwrap();
    let begins = |line: usize| said.contains(&format!("Line {line} of \"")) && said.contains("deep.c");
    assert!(begins(line) || begins(line + 1), "{said}");
    let (_, host) = said.split_once("in the host").unwrap();
    let names = frames(host);
    let inner = ["t_deep_weigh", "t_deep_twice", "t_deep_main"];
    assert!(in_order(&names, &inner), "{names:?}");
    assert!(in_order(&names, &HOST), "{names:?}");
    assert!(host.contains("/* here */"), "{host}");
}

#[test]
fn rust_has_names_and_lines_too_on_a_thread_that_did_not_make_the_target() {
    let said = session(
        &["E2E_THREAD"],
        common::libraries(),
        &["break t_lookup_main", "run", "backtrace"],
        |source| {
            let lookup = source
                .register_path::<ifunc_tests_ifuncs::t_lookup>(common::library("t_lookup"))
                .unwrap();
            lookup.send("word").unwrap();
        },
    );
    let Some(said) = said else { return };
    let names = frames(&said);
    let [enter, run, _] = HOST;
    assert!(
        in_order(&names, &["t_lookup_main", enter, run, "std::sys::"]),
        "{names:?}"
    );
    let entry = said
        .lines()
        .find(|line| line.starts_with('#') && line.contains("t_lookup_main"));
    assert!(
        entry.is_some_and(|line| line.contains("tests/ifuncs/src/lib.rs:")),
        "{said}"
    );
}

/// Sets the number, and counts.
const SET: &str = r#"
#include <stddef.h>
#include <stdint.h>

size_t t_NAME_payload_bound(void *args, size_t n) { (void)args; (void)n; return 0; }

int t_NAME_payload_init(void *args, size_t n, void *payload, size_t *size)
{
    (void)args; (void)n; (void)payload;
    *size = 0;
    return 0;
}

void t_NAME_main(void *payload, size_t n, void *target)
{
    uint64_t *state = target;
    (void)payload; (void)n;
    FIRST
    state[0] = VALUE;
    state[1]++;
}
"#;

/// gdb writes what was under a breakpoint back when the image goes, not into the one that is installed at its address.
#[test]
fn a_breakpoint_goes_with_its_image() {
    // A number of eight bytes is a part of the first instruction; with another byte in front it is another instruction.
    const LARGE: u64 = 0x1_2345_6789;
    let set = |name: &str, before: &str, value: u64| {
        let text = SET.replace("NAME", name).replace("FIRST", before);
        built(&format!("{name}.c"), &text.replace("VALUE", &value.to_string()))
    };
    let (_one, first) = set("first", "__asm__ volatile(\"nop\" ::: \"memory\");", 11);
    let (_two, second) = set("second", "", LARGE);
    let Some(mut gdb) = gdb() else { return };
    let Some(address) = unique_shm(WHY) else { return };
    gdb.env("IFUNC_ADDR", &address)
        .env("IFUNC_DEBUG", "gdb")
        .env("E2E_ONE_IMAGE", "1");
    for command in [
        "break t_first_main",
        "break t_second_main",
        "run",
        "echo \nstopped in the first\n",
        "info symbol $pc",
        // The second one has none at first: what it has then is what was left of the first one's.
        "disable 2",
        "continue",
        "echo \nstopped in the first again\n",
        "enable 2",
        "disable 1",
        "continue",
        "echo \nstopped in the second\n",
        "info symbol $pc",
        "continue",
    ] {
        gdb.args(["-ex", command]);
    }
    gdb.arg(env!("CARGO_BIN_EXE_e2e-target"));
    let mut process = Process::start(&mut gdb);
    process.wait_for(&format!("ifunc: ready {address}"));
    let source = connect(&address);
    let call = |path: &Path| {
        // SAFETY: built above. The handle goes with the call: there is room for the next image then.
        let loaded = unsafe { source.load_path(path) }.unwrap();
        loaded.call(b"").unwrap().wait().unwrap();
    };
    for (path, counter) in [(&first, 11), (&second, LARGE), (&first, 11), (&second, LARGE)] {
        call(path);
        process.wait_for_last(&format!("counter: {counter}"));
    }
    let said = process.said.join("\n");
    println!("{said}");
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("not said: {what}"));
    assert!(at("stopped in the first") < at("t_first_main in section .text"));
    assert!(at("stopped in the first again") < at("stopped in the second"));
    assert!(at("stopped in the second") < at("t_second_main in section .text"));
}

/// The second target of a process: what the first one had in its code is over, and the breakpoint is found anew.
#[test]
fn a_breakpoint_is_found_again_in_the_next_target() {
    let text = SET
        .replace("NAME", "again")
        .replace("FIRST", "")
        .replace("VALUE", "33");
    let (_folder, path) = built("again.c", &text);
    let Some(mut gdb) = gdb() else { return };
    let Some(address) = unique_shm(WHY) else { return };
    gdb.env("IFUNC_ADDR", &address)
        .env("IFUNC_DEBUG", "gdb")
        .env("E2E_ONE_IMAGE", "1")
        .env("E2E_TARGETS", "2");
    for command in [
        "break t_again_main",
        "run",
        "echo \nstopped\n",
        "continue",
        "echo \nstopped again\n",
        "info symbol $pc",
        "continue",
    ] {
        gdb.args(["-ex", command]);
    }
    gdb.arg(env!("CARGO_BIN_EXE_e2e-target"));
    let mut process = Process::start(&mut gdb);
    for round in 0..2 {
        let address = format!("{address}-{round}");
        process.wait_for(&format!("ifunc: ready {address}"));
        let source = connect(&address);
        // SAFETY: built above.
        let again = unsafe { source.load_path(&path) }.unwrap();
        again.send(b"").unwrap();
        process.wait_for(&format!("done: {address}"));
    }
    let said = process.said.join("\n");
    println!("{said}");
    let (_, behind) = said
        .split_once("stopped again")
        .unwrap_or_else(|| panic!("{said}"));
    assert!(behind.contains("t_again_main in section .text"), "{said}");
}

/// The runtime reads a library for the name of the function that panicked only if the application asks, and once.
#[test]
fn a_library_is_read_once_and_only_for_who_asks() {
    let Some(address) = unique_shm(WHY) else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let folder = tempfile::tempdir().unwrap();
    let (here, away) = (folder.path().join("t_index.so"), folder.path().join("away.so"));
    std::fs::copy(common::library("t_index"), &here).unwrap();
    let index = source
        .register_path::<ifunc_tests_ifuncs::t_index>(&here)
        .unwrap();
    let add = source
        .register_path::<ifunc_tests_ifuncs::t_add>(common::library("t_add"))
        .unwrap();
    let named = |error: ifunc_rt::Error| {
        let said = error.to_string();
        assert!(said.contains(", in `t_index_main+0x"), "{said}");
    };
    // The report comes before the answer, while there is no library; what it means is asked for when there is.
    std::fs::rename(&here, &away).unwrap();
    index.send(&5).unwrap();
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 1);
    std::fs::rename(&away, &here).unwrap();
    named(source.flush().unwrap_err());
    // Known by now.
    std::fs::remove_file(&here).unwrap();
    named(index.call(&5).unwrap().wait().unwrap_err());
    // More than are kept, none of which anybody asks for but some: a send says what is known of those before it.
    let mut told = None;
    for _ in 0..200 {
        told = index.send(&5).err().or(told);
    }
    named(source.flush().err().or(told).unwrap());
    target.wait_for("counter: 1");
}

#[test]
fn a_panic_names_the_function() {
    let Some(address) = unique_shm(WHY) else { return };
    let _target = Process::target(&address);
    let source = connect(&address);
    let index = source
        .register_path::<ifunc_tests_ifuncs::t_index>(common::library("t_index"))
        .unwrap();
    match index.call(&5).unwrap().wait() {
        Err(error @ ifunc_rt::Error::Panic { .. }) => {
            let said = error.to_string();
            assert!(said.contains(", in `t_index_main+0x"), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

/// Keeps a processor busy.
const BURN: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t t_burn_payload_bound(void *args, size_t n) { (void)args; return n; }

int t_burn_payload_init(void *args, size_t n, void *payload, size_t *size)
{
    memcpy(payload, args, n);
    *size = n;
    return 0;
}

__attribute__((noinline)) static uint64_t t_burn_inner(uint64_t rounds)
{
    volatile uint64_t sum = 0;
    while (rounds--)
        sum += rounds;
    return sum;
}

void t_burn_main(void *payload, size_t n, void *target)
{
    uint64_t rounds;
    memcpy(&rounds, payload, n);
    *(uint64_t *)target += t_burn_inner(rounds);
}
"#;

/// Whether `perf record` works here: a machine may not let anybody, or have another kernel's.
fn perf_works() -> bool {
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-k",
        "mono",
        "-e",
        "cpu-clock",
        "-o",
        "/dev/null",
        "true",
    ]);
    perf.output().is_ok_and(|output| output.status.success())
}

/// The dump in a folder, and the process that it is of.
fn dump(folder: &Path) -> (PathBuf, rustix::process::Pid) {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut dumps = entries.filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        let pid = name.strip_prefix("jit-")?.strip_suffix(".dump")?.parse().ok()?;
        Some((path, rustix::process::Pid::from_raw(pid)?))
    });
    dumps.next().expect("a dump")
}

#[test]
fn perf_knows_injected_functions() {
    let (folder, path) = built("burn.c", BURN);
    let Some(address) = unique_shm(WHY) else { return };
    let data = folder.path().join("perf.data");
    let (perf, target) = (perf_works(), env!("CARGO_BIN_EXE_e2e-target"));
    let mut command = Command::new(if perf { "perf" } else { target });
    if perf {
        command.args([
            "record",
            "-q",
            "-k",
            "mono",
            "-e",
            "cpu-clock",
            "-F",
            "1000",
            "-o",
        ]);
        command.arg(&data).arg(target);
    } else {
        eprintln!("perf cannot record here: only the dump itself is looked at");
    }
    command
        .env("IFUNC_ADDR", &address)
        .env("IFUNC_DEBUG", "gdb,perf")
        .env("IFUNC_LIB_DIR", path.parent().unwrap())
        .env("JITDUMPDIR", folder.path());
    let mut process = Process::start(&mut command);
    process.wait_for(&format!("ifunc: ready {address}"));
    let source = connect(&address);
    // SAFETY: built above.
    let burn = unsafe { source.load_path(&path) }.unwrap();
    burn.call(&300_000_000u64.to_le_bytes()).unwrap().wait().unwrap();

    let (dump, pid) = dump(folder.path());
    let bytes = std::fs::read(&dump).unwrap();
    assert_eq!(bytes[..4], 0x4a69_5444u32.to_le_bytes());
    for name in ["t_burn_main", "t_burn_inner"] {
        let name = [name.as_bytes(), b"\0"].concat();
        assert!(bytes.windows(name.len()).any(|window| window == name));
    }
    if !perf {
        return;
    }
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    process.wait_for_end();
    let run = |arguments: &[&str]| {
        let output = Command::new("perf")
            .args(arguments)
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    };
    run(&["inject", "--jit", "-i", "perf.data", "-o", "jit.data"]);
    let said = run(&["script", "-i", "jit.data", "-F", "ip,sym"]);
    let samples: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let (inner, all) = (
        samples.iter().filter(|&&name| name == "t_burn_inner").count(),
        samples.len(),
    );
    println!("{inner} of {all} samples are in t_burn_inner");
    assert!(inner > 0, "{said}");
}
