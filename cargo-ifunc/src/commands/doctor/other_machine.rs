//! Building for the other architecture, and running programs for it. A machine that builds for itself alone needs nothing of it.

use std::path::Path;

use ifunc_build::c_compiler_for;

use super::finding::Finding;
use super::toolchain::{has_core, links};

/// The architecture that this machine is not of.
struct Other {
    triple: &'static str,
    /// The packages of its C compiler.
    compiler: &'static str,
    /// ELF `e_machine`.
    machine: u8,
    /// As QEMU names it.
    qemu: &'static str,
    runner: &'static str,
    /// The loader of programs that are linked dynamically.
    loader: &'static str,
    /// Where Debian's packages have its C library.
    root: &'static str,
}

#[cfg(not(target_arch = "aarch64"))]
const OTHER: Other = Other {
    triple: "aarch64-unknown-linux-gnu",
    compiler: "`apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross` (Debian), or Clang and the C library for it: `CC_aarch64_unknown_linux_gnu=clang`",
    machine: 183,
    qemu: "aarch64",
    runner: "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
    loader: "lib/ld-linux-aarch64.so.1",
    root: "/usr/aarch64-linux-gnu",
};
#[cfg(target_arch = "aarch64")]
const OTHER: Other = Other {
    triple: "x86_64-unknown-linux-gnu",
    compiler: "`apt-get install gcc-x86-64-linux-gnu libc6-dev-amd64-cross` (Debian), or Clang and the C library for it: `CC_x86_64_unknown_linux_gnu=clang`",
    machine: 62,
    qemu: "x86_64",
    runner: "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
    loader: "lib64/ld-linux-x86-64.so.2",
    root: "/usr/x86_64-linux-gnu",
};

/// The name of the area.
pub(super) const AREA: &str = match OTHER.machine {
    183 => "building for AArch64",
    _ => "building for x86-64",
};

pub(super) fn checks() -> Vec<Finding> {
    let compiler = c_compiler_for(OTHER.triple).map_err(|error| error.to_string());
    vec![
        rust(has_core(OTHER.triple)),
        c(compiler.and_then(|cc| match links(&cc) {
            Ok(()) => Ok(cc),
            Err(reason) => Err(format!("`{cc} -shared` fails: {reason}")),
        })),
        programs(&Emulation::of_this_machine()),
    ]
}

/// Whether Rust has `core` and `alloc` for it.
fn rust(has_core: bool) -> Finding {
    let triple = OTHER.triple;
    match has_core {
        true => Finding::ok("Rust", format!("core and alloc of {triple}")),
        false => Finding::none(
            "Rust",
            format!("no `core` for {triple}"),
            format!("to build Rust ifuncs for it: `rustup target add {triple}`"),
        ),
    }
}

/// The C compiler for it, or why there is none.
fn c(compiler: Result<String, String>) -> Finding {
    match compiler {
        Ok(compiler) => Finding::ok("C", format!("`{compiler}` compiles and links")),
        Err(reason) => {
            // The remedy of the error is for those who build now.
            let reason = reason.lines().next().unwrap_or_default();
            let help = format!("to build C ifuncs and libraries for it: {}", OTHER.compiler);
            Finding::none("C", reason, help)
        }
    }
}

/// What runs programs for the other architecture.
#[derive(Default)]
struct Emulation {
    /// The runner that cargo is told of.
    runner: Option<String>,
    /// The descriptions of binary formats in the kernel (binfmt_misc).
    formats: Vec<String>,
    /// QEMU's program, if it is installed.
    qemu: Option<String>,
    /// Programs find their loader.
    has_loader: bool,
}

impl Emulation {
    fn of_this_machine() -> Self {
        let formats = std::fs::read_dir("/proc/sys/fs/binfmt_misc");
        let formats = formats.into_iter().flatten().flatten();
        let names = ["", "-static"].map(|suffix| format!("qemu-{}{suffix}", OTHER.qemu));
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let is_installed = |name: &String| std::env::split_paths(&folders).any(|at| at.join(name).is_file());
        let prefix = std::env::var_os("QEMU_LD_PREFIX").unwrap_or_default();
        let of_qemu = Path::new("/etc/qemu-binfmt").join(OTHER.qemu);
        Self {
            runner: std::env::var(OTHER.runner)
                .ok()
                .filter(|words| !words.trim().is_empty()),
            formats: formats
                .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
                .collect(),
            qemu: names.into_iter().find(is_installed),
            has_loader: [Path::new("/"), Path::new(&prefix), &of_qemu]
                .iter()
                .any(|root| root.is_absolute() && root.join(OTHER.loader).exists()),
        }
    }
}

fn programs(found: &Emulation) -> Finding {
    let name = "running programs";
    if let Some(runner) = &found.runner {
        return Finding::ok(name, format!("{} is `{runner}`", OTHER.runner));
    }
    let starts = found.formats.iter().find_map(|format| interpreter(format));
    match (starts, &found.qemu) {
        (Some(interpreter), _) if found.has_loader => {
            Finding::ok(name, format!("the kernel starts them by `{interpreter}`"))
        }
        (Some(interpreter), _) => Finding::none(
            name,
            format!(
                "the kernel starts them by `{interpreter}`, which finds no `{}`",
                OTHER.loader
            ),
            format!(
                "programs that are linked statically run; for the others `export QEMU_LD_PREFIX={}`, or the folder that has their libraries",
                OTHER.root
            ),
        ),
        (None, Some(qemu)) => Finding::none(
            name,
            format!("`{qemu}` is there, and the kernel does not start it"),
            format!(
                "`export {}=\"{qemu} -L {}\"`, or as root `systemctl restart systemd-binfmt`",
                OTHER.runner, OTHER.root
            ),
        ),
        (None, None) => Finding::none(
            name,
            "no emulator",
            "to run its targets and sources here: `apt-get install qemu-user-static` (Debian), `dnf install qemu-user-static` (Fedora)",
        ),
    }
}

/// The interpreter of a binary format, if the format is that of ELF programs for the other architecture.
fn interpreter(format: &str) -> Option<&str> {
    let value = |name: &str| {
        let lines = format.lines();
        lines
            .filter_map(|line| line.strip_prefix(name))
            .next()
            .map(str::trim)
    };
    // An executable file of 64 bits, little-endian.
    let mut header = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\0\0";
    header[18] = OTHER.machine;
    let magic = bytes(value("magic ")?)?;
    let mask = match value("mask ") {
        Some(mask) => bytes(mask)?,
        None => vec![0xff; magic.len()],
    };
    let fits = magic.len() <= header.len()
        && header
            .iter()
            .zip(magic.iter().zip(&mask))
            .all(|(byte, (magic, mask))| byte & mask == magic & mask);
    let is_on = format.lines().any(|line| line == "enabled");
    let is_of_elf = magic.starts_with(&header[..4]) && value("offset ") == Some("0");
    (is_on && is_of_elf && fits).then(|| value("interpreter "))?
}

/// The bytes of digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    fn format(machine: u8) -> String {
        format!(
            "enabled\ninterpreter /usr/bin/qemu\nflags: POF\noffset 0\nmagic 7f454c460201010000000000000000000200{machine:02x}00\nmask ffffffffffffff00fffffffffffffffffeffffff\n"
        )
    }

    #[test]
    fn a_machine_that_builds_for_itself_alone_lacks_nothing() {
        let nothing = Emulation::default();
        for finding in [
            rust(false),
            c(Err("cannot run `x-gcc`: no such file\nhelp: install it".into())),
            programs(&nothing),
        ] {
            assert_eq!(finding.mark, Mark::None, "{finding:?}");
            assert!(!finding.found.contains('\n'), "{finding:?}");
            assert!(finding.help.is_some());
        }
        assert_eq!(rust(true).mark, Mark::Ok);
        assert_eq!(c(Ok("x-gcc".into())).mark, Mark::Ok);
    }

    #[test]
    fn programs_run_by_the_kernel_or_by_a_runner() {
        let here = |change: fn(&mut Emulation)| {
            let mut found = Emulation {
                formats: vec![format(2), format(OTHER.machine)],
                qemu: Some("qemu".into()),
                has_loader: true,
                runner: None,
            };
            change(&mut found);
            programs(&found)
        };
        let help = |finding: Finding| finding.help.unwrap_or_default();
        assert_eq!(here(|_| ()).found, "the kernel starts them by `/usr/bin/qemu`");
        assert!(help(here(|found| found.has_loader = false)).contains("QEMU_LD_PREFIX"));
        assert!(help(here(|found| found.formats.truncate(1))).contains(OTHER.runner));
        let off = here(|found| found.formats[1] = found.formats[1].replace("enabled", "disabled"));
        assert_eq!(off.mark, Mark::None);
        let runner = here(|found| {
            *found = Emulation {
                runner: Some("qemu -L /".into()),
                ..Emulation::default()
            }
        });
        assert_eq!(runner.mark, Mark::Ok);
    }

    #[test]
    fn formats_of_other_files_start_nothing() {
        assert_eq!(interpreter(&format(OTHER.machine)), Some("/usr/bin/qemu"));
        for other in [
            format(40),
            "enabled\ninterpreter /usr/bin/x\nextension .x\n".into(),
            "enabled\ninterpreter /usr/bin/x\noffset 0\nmagic \n".into(),
            "enabled\ninterpreter /usr/bin/x\noffset 0\nmagic 7g\n".into(),
            "enabled".into(),
        ] {
            assert_eq!(interpreter(&other), None, "{other}");
        }
    }
}
