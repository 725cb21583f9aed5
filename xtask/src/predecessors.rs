//! `cargo xtask predecessors`: programs for the UCX ifunc interface of 2021 and 2022, over the library that takes its place.
//!
//! `tests/predecessors` has them, as the authors of those systems wrote theirs. Each is compiled for each variant of the interface, as C
//! and as C++, and runs over shared memory, and over TCP between hosts made of namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::{Host, network};
use crate::process::{ifunc, status};
use crate::steps::Steps;
use crate::{child, debian, dropin};

/// A pair of programs that takes longer is killed.
const LIMIT: Duration = Duration::from_secs(600);
/// A variant of the interface.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    /// What tells the sources which one it is.
    define: &'static str,
    /// The ifuncs of `test_ifunc` beside `multi`, which needs libraries.
    ifuncs: &'static [&'static str],
    has_chase: bool,
}

const VARIANTS: [Variant; 3] = [
    Variant {
        name: "paper",
        define: "-DPAPER",
        ifuncs: &["hello", "b"],
        has_chase: false,
    },
    Variant {
        name: "slides",
        define: "-DSLIDES",
        ifuncs: &["hello", "b", "pure"],
        has_chase: false,
    },
    Variant {
        name: "threechains",
        define: "-DTHREECHAINS",
        ifuncs: &["hello", "b", "pure", "p", "chaser", "result", "stop"],
        has_chase: true,
    },
];

/// Compilers, and what they take the sources for.
const COMPILERS: [(&str, &[&str]); 4] = [
    ("gcc", &["-std=c99"]),
    ("clang", &["-std=c99"]),
    ("g++", &["-std=c++11", "-x", "c++"]),
    ("clang++", &["-std=c++11", "-x", "c++"]),
];

/// What looks at the memory that a program uses. Its reports end the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checker {
    None,
    /// AddressSanitizer with its search for leaks, and UndefinedBehaviorSanitizer.
    Sanitizers,
    Valgrind,
}

impl Checker {
    /// What the name of a run ends in.
    fn shown(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Sanitizers => ", under sanitizers",
            Self::Valgrind => ", under valgrind",
        }
    }

    /// What the name of a program ends in that is compiled for it.
    fn suffix(self) -> &'static str {
        match self {
            Self::Sanitizers => "-sanitized",
            Self::None | Self::Valgrind => "",
        }
    }

    /// Options of the compiler.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Sanitizers => &[
                "-g",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=undefined",
            ],
            Self::None | Self::Valgrind => &[],
        }
    }

    /// What a program is started by.
    fn tool(self) -> &'static [&'static str] {
        match self {
            // Injected code has a stack of its own.
            Self::Valgrind => &[
                "valgrind",
                "--quiet",
                "--error-exitcode=99",
                "--leak-check=full",
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
                "--max-stackframe=65536",
            ],
            Self::None | Self::Sanitizers => &[],
        }
    }

    /// Messages of each size, and the logarithm of the largest one.
    fn effort(self) -> (&'static str, usize) {
        match self {
            Self::None => ("200", 20),
            Self::Sanitizers => ("20", 20),
            Self::Valgrind => ("10", 16),
        }
    }
}

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    let only = match options {
        [] => "",
        [option, only] if option == "--only" => only,
        _ => {
            eprintln!(
                "error: unknown arguments: {}\nhelp: cargo xtask predecessors [--only TEXT]",
                options.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    let mut steps = Steps::new(crate::plan::Tier::Nightly);
    debian::needs(&mut steps);
    if !steps.is_over() {
        of_name(&mut steps, only);
    }
    steps.summary()
}

/// All of it, as steps.
pub(crate) fn run(steps: &mut Steps) {
    of_name(steps, "");
}

/// What builds the programs, and the runs with `only` in their names.
fn of_name(steps: &mut Steps, only: &str) {
    let mut prefix = PathBuf::new();
    let is_installed = steps.step("libucp_ifunc, installed", || {
        let folder = scratch("prefix")?;
        prefix = folder.canonicalize().map_err(|e| e.to_string())?;
        dropin::install(&prefix, "debug").map(|()| String::new())
    });
    if !is_installed {
        return;
    }
    for variant in VARIANTS {
        let built = steps.step(&format!("{}: built by four compilers", variant.name), || {
            build(&prefix, variant)
        });
        if !built {
            continue;
        }
        let mut step = |name: String, work: &dyn Fn() -> Result<String, String>| {
            let name = format!("{}: {name}", variant.name);
            if name.contains(only) {
                steps.step(&name, work);
            }
        };
        for (compiler, _) in COMPILERS {
            step(format!("over shared memory, {compiler}"), &|| {
                test_ifunc(variant, compiler, Checker::None, None)
            });
        }
        for checker in [Checker::Sanitizers, Checker::Valgrind] {
            step(format!("over shared memory{}", checker.shown()), &|| {
                test_ifunc(variant, "gcc", checker, None)
            });
        }
        step("between two hosts".into(), &|| {
            let (_switch, hosts) = network(&scratch("hosts")?, 2)?;
            test_ifunc(variant, "gcc", Checker::None, Some(&hosts))
        });
        if variant.has_chase {
            let plain = [1, 2, 4].map(|servers| (servers, Checker::None));
            let checked = [Checker::Sanitizers, Checker::Valgrind].map(|checker| (2, checker));
            for (servers, checker) in plain.into_iter().chain(checked) {
                let shown = checker.shown();
                step(
                    format!("pointer chase over {servers} servers on hosts{shown}"),
                    &|| pointer_chase(variant, servers, checker),
                );
            }
        }
    }
}

fn scratch(name: &str) -> Result<PathBuf, String> {
    let folder = crate::scratch().join("predecessors").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    Ok(folder)
}

fn folder(variant: Variant) -> PathBuf {
    crate::scratch().join("predecessors").join(variant.name)
}

fn program(variant: Variant, compiler: &str, checker: Checker, name: &str) -> PathBuf {
    folder(variant).join(format!("{name}-{compiler}{}", checker.suffix()))
}

/// Compiles programs and ifuncs of a variant.
fn build(prefix: &Path, variant: Variant) -> Result<String, String> {
    let to = scratch(variant.name)?;
    let sources = crate::root().join("tests/predecessors");
    let headers = prefix.join("include/ifunc/compat").join(variant.name);
    let (libraries, include) = (prefix.join("lib"), format!("-I{}", headers.display()));
    let mut programs = vec!["test_ifunc"];
    if variant.has_chase {
        programs.push("pointer_chase");
    }
    let plain = COMPILERS.map(|(compiler, language)| (compiler, language, Checker::None));
    let (gcc, c99) = COMPILERS[0];
    for (compiler, language, checker) in plain.into_iter().chain([(gcc, c99, Checker::Sanitizers)]) {
        for name in &programs {
            let mut command = Command::new(compiler);
            command
                .args(language)
                .args([
                    "-O2",
                    "-Wall",
                    "-Wextra",
                    "-Wpedantic",
                    "-Werror",
                    variant.define,
                    "-I.",
                ])
                .args(checker.flags())
                .arg(&include)
                .args([format!("{name}.c").as_str(), "peer.c", "-x", "none", "-o"])
                .arg(program(variant, compiler, checker, name))
                .arg(format!("-L{}", libraries.display()))
                .arg(format!("-Wl,-rpath,{}", libraries.display()))
                .args(["-lucp_ifunc", "-lucp", "-lucs"])
                .current_dir(&sources)
                .stdin(Stdio::null());
            status(&mut command)?;
        }
    }
    let source = |name: &str| sources.join(format!("ifuncs/{name}.c")).display().to_string();
    let cflags = format!("--cflags={} -I{} {include}", variant.define, sources.display());
    let target = format!("--target-dir={}", to.join("ifuncs").display());
    let simple: Vec<String> = variant.ifuncs.iter().map(|name| source(name)).collect();
    let mut args = vec!["build", "--quiet", &target, &cflags];
    args.extend(simple.iter().map(String::as_str));
    let find = format!("--link-arg=-L{}", libraries.display());
    args.extend([find.as_str(), "--link-arg=-lucp_ifunc"]);
    status(&mut ifunc(&args)?)?;
    let multi = source("multi");
    let mut args = vec!["build", "--quiet", &target, &cflags, &multi];
    args.extend(["--needed", "libz.so.1", "--needed", "libcrypto.so.3"]);
    args.extend(["--link-arg=-lz", "--link-arg=-lcrypto"]);
    status(&mut ifunc(&args)?)?;
    Ok(format!(
        "{} programs, {} ifuncs",
        programs.len() * (COMPILERS.len() + 1),
        simple.len() + 1
    ))
}

/// Starts a program of a variant, on a host or here, with its output in `log`.
fn start(
    variant: Variant,
    (program, checker): (&Path, Checker),
    args: &[&str],
    host: Option<&Host>,
    port: u16,
    log: &Path,
) -> Result<Child, String> {
    let path = program.to_string_lossy();
    let words = [checker.tool(), &[&*path]].concat();
    let mut command = match host {
        Some(host) => host.command(words[0]),
        None => Command::new(words[0]),
    };
    command
        .args(&words[1..])
        .args(args)
        .env("PEER_PORT", port.to_string())
        .env("UCX_IFUNC_LIB_DIR", folder(variant).join("ifuncs/release"))
        // Stock UCX does not know that variable.
        .env("UCX_WARN_UNUSED_ENV_VARS", "n");
    child::start(&mut command, log)
}

/// Waits for programs that end together; what they printed, if all went well.
fn ended(running: Vec<(Child, PathBuf)>) -> Result<Vec<String>, String> {
    let until = Instant::now() + LIMIT;
    let mut results = Vec::new();
    for (child, log) in running {
        let left = until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let (_, result) = child::wait(child, Some(left));
        results.push((result, fs::read_to_string(&log).unwrap_or_default(), log));
    }
    let all = results
        .iter()
        .map(|(_, said, log)| format!("\n{}:\n{said}", log.display()));
    let all: String = all.collect();
    for (result, said, log) in &results {
        let log = log.display();
        result.as_ref().map_err(|why| format!("`{log}`: {why}{all}"))?;
        if !said.ends_with("done\n") {
            return Err(format!("`{log}` does not end with `done`{all}"));
        }
    }
    Ok(results.into_iter().map(|(_, said, _)| said).collect())
}

/// A port that is free now.
fn free_port() -> Result<u16, String> {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| format!("no free port: {e}"))
}

/// The program of single invocations, rates and ping-pong.
fn test_ifunc(
    variant: Variant,
    compiler: &str,
    checker: Checker,
    hosts: Option<&[Host]>,
) -> Result<String, String> {
    let program = program(variant, compiler, checker, "test_ifunc");
    let to = folder(variant);
    let (server_log, client_log) = (to.join("server.log"), to.join("client.log"));
    let port = free_port()?;
    let (messages, largest) = checker.effort();
    let (sizes, largest) = (largest + 1, largest.to_string());
    let [server, client] = match hosts {
        Some([server, client, ..]) => [Some(server), Some(client)],
        _ => [None, None],
    };
    let name = server.map_or("127.0.0.1".to_owned(), Host::ip);
    let mut args = vec!["-n", messages, "-l", &largest];
    // TCP moves nothing without the target's progress.
    args.extend(hosts.map(|_| "-p"));
    let program = (program.as_path(), checker);
    let server = start(variant, program, &args, server, port, &server_log)?;
    args.push(&name);
    let client = start(variant, program, &args, client, port, &client_log)?;
    let said = ended(vec![(client, client_log), (server, server_log)])?;
    let (client, server) = (&said[0], &said[1]);

    let count = |text: &str, ending: &str| text.lines().filter(|line| line.ends_with(ending)).count();
    let rounds = if variant.has_chase { 2 } else { 1 };
    for text in [client, server] {
        let (rates, times) = (count(text, " messages/s"), count(text, " us"));
        if (rates, times) != (sizes, rounds * sizes) {
            return Err(format!("{rates} rates and {times} times:\n{text}"));
        }
    }
    let line = |text: &str, start: &str| {
        text.lines()
            .find(|line| line.starts_with(start))
            .map(str::to_owned)
    };
    let expected = [
        "Hello: payload 0x",
        "payload_size: fib(17) + 42 = 2626",
        "Decompressed size 4194304",
    ];
    for start in expected {
        line(server, start).ok_or_else(|| format!("the server did not print `{start}`:\n{server}"))?;
    }
    // The second one is that of code in memory.
    let hellos = server.matches(expected[0]).count();
    if hellos != rounds {
        return Err(format!("{hellos} of {rounds} lines `{}`:\n{server}", expected[0]));
    }
    let hash = line(server, "SHA-256 ").ok_or("the server printed no hash")?;
    if line(client, "SHA-256 ").as_ref() != Some(&hash) {
        return Err(format!("the hashes differ:\n{client}\n{server}"));
    }
    let smallest = client.lines().find(|line| line.ends_with(" messages/s"));
    Ok(smallest.unwrap_or_default().trim().to_owned())
}

/// The pointer chase in each mode; the results must be equal.
fn pointer_chase(variant: Variant, servers: usize, checker: Checker) -> Result<String, String> {
    let program = program(variant, "gcc", checker, "pointer_chase");
    let program = (program.as_path(), checker);
    let scratch = scratch("hosts")?;
    let (_switch, hosts) = network(&scratch, servers + 1)?;
    let port = 13_337;
    let mut first: Option<Vec<String>> = None;
    let mut rates = Vec::new();
    for mode in ["0", "1", "2", "3"] {
        let mut running = Vec::new();
        for (n, host) in hosts[..servers].iter().enumerate() {
            let log = scratch.join(format!("server-{mode}-{n}.log"));
            running.push((start(variant, program, &[], Some(host), port, &log)?, log));
        }
        let names: Vec<String> = hosts[..servers].iter().map(Host::ip).collect();
        let mut args = vec!["-d", "4", "-c", "5"];
        args.extend(names.iter().map(String::as_str));
        args.push(mode);
        let log = scratch.join(format!("client-{mode}.log"));
        let client = start(variant, program, &args, Some(&hosts[servers]), port, &log)?;
        running.insert(0, (client, log));
        let said = ended(running)?;
        // `[ 0]: WORD`; UCX's warnings begin with a bracket, too.
        let words = said[0]
            .lines()
            .filter(|line| line.get(..1) == Some("[") && line.get(3..6) == Some("]: "));
        let shown: Vec<String> = words.map(str::to_owned).collect();
        if shown.len() != 20 {
            return Err(format!(
                "mode {mode} printed {} of 20 words:\n{}",
                shown.len(),
                said[0]
            ));
        }
        match &first {
            None => first = Some(shown),
            Some(first) if *first == shown => {}
            Some(first) => return Err(format!("mode 0: {first:?}\nmode {mode}: {shown:?}")),
        }
        let deepest = said[0]
            .lines()
            .rfind(|line| line.matches(',').count() == 4)
            .unwrap_or_default();
        let rate = deepest.rsplit(',').next().unwrap_or_default();
        rates.push(format!("mode {mode}: {rate}/s"));
    }
    Ok(rates.join(", "))
}
