//! Runs images of AArch64 on this machine: `loader.c`, compiled for AArch64, under `qemu-aarch64-static`.
//!
//! Without the cross compiler or the emulator nothing is run, which `IFUNC_REQUIRE_AARCH64` forbids.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ifunc_abi::image::Image;

pub use super::plan::Outcome;
use super::plan::{hex, outcome, plan_of};
use super::sources::{Machine, compilers_for, folder, is_there, not_compared, package, run};

const EMULATOR: &str = "qemu-aarch64-static";
/// Where the cross compiler's package keeps the libraries of AArch64.
const ROOT: &str = "/usr/aarch64-linux-gnu";
/// The compiled loader.
pub struct Emulator {
    loader: PathBuf,
    host: PathBuf,
    _folder: tempfile::TempDir,
}

/// The emulator; `None` where the tools are missing.
pub fn emulator() -> Option<&'static Emulator> {
    static FOUND: OnceLock<Option<Emulator>> = OnceLock::new();
    FOUND.get_or_init(Emulator::prepare).as_ref()
}

impl Emulator {
    fn prepare() -> Option<Self> {
        let missing = match compilers_for(Machine::AArch64).is_empty() {
            true => Some("no C compiler for AArch64 (`gcc-aarch64-linux-gnu`)"),
            false => (!is_there(EMULATOR)).then_some("no `qemu-aarch64-static` (`qemu-user-static`)"),
        };
        if let Some(missing) = missing {
            let required = std::env::var_os("IFUNC_REQUIRE_AARCH64").is_some();
            assert!(!required, "IFUNC_REQUIRE_AARCH64 is set, and there is {missing}");
            not_compared(&format!("AArch64: there is {missing}"));
            return None;
        }
        let folder_of_loader = tempfile::tempdir().unwrap();
        let compiler = compilers_for(Machine::AArch64)[0];
        let [loader, host] = ["loader", "libhost.so"].map(|name| folder_of_loader.path().join(name));
        run(compiler
            .command("c")
            .args(["-O1", "-o"])
            .arg(&loader)
            .arg(package().join("tests/common/loader.c")));
        run(compiler
            .command("c")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&host)
            .arg(folder().join("host.c")));
        Some(Self {
            loader,
            host,
            _folder: folder_of_loader,
        })
    }

    /// What an image does with each payload.
    pub fn run_image(&self, image: &[u8], payloads: &[Vec<u8>]) -> Vec<Outcome> {
        let image = Image::parse(image).unwrap();
        let plan = self
            .loader
            .with_file_name(format!("{:?}.plan", std::thread::current().id()));
        std::fs::write(&plan, plan_of(&image)).unwrap();
        let align = image.rx_align().to_string();
        self.run(["image".as_ref(), align.as_ref(), plan.as_ref()], payloads)
    }

    /// What a function of a shared library does with each payload.
    pub fn run_library(&self, library: &Path, symbol: &str, payloads: &[Vec<u8>]) -> Vec<Outcome> {
        self.run(["library".as_ref(), library.as_ref(), symbol.as_ref()], payloads)
    }

    fn run(&self, what: [&std::ffi::OsStr; 3], payloads: &[Vec<u8>]) -> Vec<Outcome> {
        let mut command = Command::new(EMULATOR);
        command
            .args(["-L", ROOT])
            .arg(&self.loader)
            .arg(&self.host)
            .args(what);
        command.args(payloads.iter().map(|payload| hex(payload)));
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let outcomes: Vec<Outcome> = text.lines().map(outcome).collect();
        assert_eq!(outcomes.len(), payloads.len(), "{text}");
        outcomes
    }
}
