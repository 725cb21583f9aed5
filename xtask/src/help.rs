//! What `cargo xtask help` prints.

/// All commands. Each begins with two spaces and its name; what is said of it follows with more.
pub(crate) const ALL: &str = "\
cargo xtask COMMAND

  test [--list] [--only PART]...
            what runs with every commit: install what the tests need, formatting, clippy, documentation, tests, examples, README
  nightly [--list] [--only PART]...
            all of that and everything else: every test, both corpora, soak, faults, two hosts, loom and packages in full
  test --smallest
            all tests with 2 credits and the smallest ring, those between processes over every transport
  needs     install the Debian packages that the tests need
  lint      formatting, clippy and the documentation, warnings denied
  package   pack the published crates, and build them from their packages
  readme [--here] [--only TEXT]
            compile the rust blocks of README.md, of the examples' README.md and of the book, run their other blocks in a fresh
            clone, and compare what they print; --here: in this checkout; --only: the pages with TEXT in their names
  corpus [--full]
            send the images of many sources to another process, and compare with direct calls; --full: with every setting
  simulate [--seeds N] [--seed S] [--steps N] [--json]
            drive connections over simulated links that reorder, delay and die, and check every step; --seed: one run, with
            the steps that a violation needs
  simulate --mutants
            put bugs into a copy of the connection, one at a time; the simulator must find each
  soak [--quick] [--messages N] [--transport LIST] [--part LIST] [--rounds N] [--visits N] [--seed N]
            millions of messages, sources that come, go and are killed, wake-ups, idle processes; see docs/testing.md.
            Lists are of shm,ucx,ucx-put and of idle,wakes,many,messages; --quick: half a minute of it
  hostile [--seconds N] [--transport LIST] [--seed N]
            attack a target over shm and tls for N seconds each (60): peers that rewrite shared memory, flood, lie, hold fragments
            open, garble records and connect by the thousand, beside an honest source, which must not notice
  faults [--quick] [--only CELL]...
            kill, stop and restart sources and targets in every state of their connection, on every transport; --quick: fewer
            cells, and shorter stops; --only: the cells whose names begin so (shm/target/kill/mid-frame; `*` is any part)
  two-hosts [--quick | --only PART]
            the examples, tests and numbered messages between two network namespaces, over links that drop, delay and block
            packets; --only: the runs with PART in their names, such as `ucx, the link`
  predecessors [--only TEXT]
            programs for the UCX ifunc interface of 2021 and 2022, in C and C++, over shared memory and between hosts made of
            namespaces; their pointer chase over 1, 2 and 4 servers
  chase [--servers LIST] [--delay LIST] [--depth D] [--entries LOG2] [--batch K] [--seconds S] [--modes MODES] [--spin MICROSECONDS] [--share PERCENT]
            the pointer chase of example 04 over UCX's TCP, each server in a network namespace; LIST: numbers of servers (2,4);
            MODES: get,am,ifunc, or some of them. They take turns of 40 ms, and a ratio is the median of the turns. --spin: how long
            servers and source poll before they sleep; without it as the runtime does, and 0 where there are fewer processors than
            processes: all of them then run on one. --delay: also over networks that take so many microseconds (50,200) from host to
            host, beside one that takes none. --share: each host has so much of a processor's time, and no host another one's
  aarch64 [tools | --only TEXT]
            unit tests on AArch64, and the examples, a chain of servers and the corpus between both architectures, under QEMU; tools:
            fetch what builds and runs programs for AArch64 (Debian's packages, unpacked below `target`), and print the line by which
            a shell uses it; --only: the steps with TEXT in their names
  bench [--quick] [--only FIGURE]... [--json FILE]
            measure the runtime and its alternatives in one run on two cores; --quick: only check that it works; --json: write
            the rows there, and as CSV beside it. Without it a whole run writes them where --render reads them,
            and another adds the figures that are missing there
  bench --render [FILE]
            render docs/performance.md and its plots from the last whole run, or from FILE, which replaces it
  build-time [--release]
            build a trivial ifunc, beside `cargo build --release` of the same crate; --release: with the command as it is installed
  man [--to DIR]
            write the manual pages of `cargo ifunc` and of the C headers; without DIR to target/man
  fuzz [--quick] [--hours N | --seconds N] [--only TARGET]... [--json]
            run the fuzz targets of `fuzz/` with libFuzzer and AddressSanitizer, and print for each what it executed and which
            part of its code it reached; --hours: all targets together, --seconds: each, --quick: 10 seconds each. Needs a
            nightly toolchain
  fuzz --merge | --seeds
            replace the committed inputs by the fewest that reach as much as what was found; write the first inputs
  miri      the tests that Miri can run, under Miri
  mutants [--only AREA]... [--sample N] [--seed S] [--named TEXT]
            put bugs into ifunc-abi, ifunc-proto, ifunc-exec and the transports, one at a time, and print how many the tests find;
            AREA: one of ifunc-abi, ifunc-proto, ifunc-exec, transport; --sample: N mutants of each area, which the seed S (0)
            draws; --named: those with TEXT in their names. Needs cargo-mutants
  loom      the models of shared memory and locks, in every order of their steps that loom explores
  instructions
            count the instructions of a message of 8 bytes over shm, and compare them with their budget
  ucx-bindings [--check]
            generate (compare) ucx-sys/src/bindings from the headers of UCX 1.13; needs libclang
  install-ucp-ifunc --prefix DIR [--debug]
            build the UCX ifunc interface of the systems before this one, and install libucp_ifunc.so and .a, and the headers of its
            three variants, below DIR; --debug: the library as tests are built
  install-capi --prefix DIR [--debug]
            build the C interface of the runtime and install ifunc_rt.h, libifunc_rt.so and .a, ifunc.h, the files for pkg-config
            and CMake, and manual pages below DIR; --debug: the library as tests are built
  capi-header [--check]
            generate (compare) ifunc-capi/include/ifunc_rt.h from the sources of ifunc-capi
  help      this text
";

/// What is said of a command; `None`: there is no such command.
pub(crate) fn of(command: &str) -> Option<String> {
    let mut help = String::new();
    let mut is_of_command = false;
    for line in ALL.lines().skip(1) {
        if let Some(start) = line.strip_prefix("  ").filter(|start| !start.starts_with(' ')) {
            is_of_command = start.split(' ').next() == Some(command);
        }
        if is_of_command {
            help.push_str(line);
            help.push('\n');
        }
    }
    (!help.is_empty()).then_some(help)
}

/// The error for an option that a command does not have.
pub(crate) fn no_option(command: &str, option: &str) -> String {
    format!("`cargo xtask {command}` has no option `{option}`\nhelp: `cargo xtask {command} --help`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_own_lines_alone() {
        let hostile = of("hostile").unwrap();
        assert!(hostile.starts_with("  hostile [--seconds N]") && hostile.ends_with("must not notice\n"));
        assert_eq!(hostile.lines().count(), 3);
        let fuzz = of("fuzz").unwrap();
        assert!(fuzz.contains("\n  fuzz --merge | --seeds\n") && !fuzz.contains("miri"));
        assert!(of("miri").unwrap().contains("under Miri") && of("host").is_none() && of("").is_none());
    }
}
