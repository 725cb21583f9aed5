//! What builds programs for AArch64, and what runs them: Debian's cross compilers, its Rust compiler for web browsers with the
//! standard library of both architectures, UCX for AArch64, and QEMU.
//!
//! The C compiler and QEMU are installed. The rest is only unpacked below cargo's target directory, for Debian's Rust compiler would
//! take the place of the one in use, and packages of another architecture would need the system to take them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::debian;
use crate::process::status;

/// The target triple.
pub(crate) const TRIPLE: &str = "aarch64-unknown-linux-gnu";
/// Debian's C library for programs of this architecture.
const C_LIBRARY: &str = "/usr/aarch64-linux-gnu/lib";
/// What UCX, programs and ifuncs need of AArch64 beyond the C library. UCX loads what is missing of InfiniBand's libraries at run time.
const LIBRARIES: [&str; 7] = [
    "libstd-rust-web-dev",
    "libucx0",
    "libucx-dev",
    "libnuma1",
    "zlib1g",
    "zlib1g-dev",
    "libssl-dev",
];
/// Packages of the build machine's architecture.
const COMPILER: [&str; 2] = ["rustc-web", "libstd-rust-web-dev"];
/// A file that sets the environment of shells. It is written last.
const ENVIRONMENT: &str = "environment";

/// The unpacked tools.
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Installs and unpacks what is missing.
    pub(crate) fn ensure() -> Result<Self, String> {
        debian::ensure()?;
        if !debian::is_debian() {
            return Err(
                "the compiler and the libraries come from Debian's packages, and this is no Debian".into(),
            );
        }
        let folder = crate::scratch().join("aarch64");
        let failed = |e| format!("cannot create `{}`: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let tools = Self {
            // Cargo's settings need the whole path.
            folder: folder.canonicalize().map_err(failed)?,
        };
        if !tools.exports().exists() {
            tools.unpack_all()?;
        }
        Ok(tools)
    }

    /// A file that sets the environment of shells as [`environment`](Self::environment) says.
    pub(crate) fn exports(&self) -> PathBuf {
        self.folder.join(ENVIRONMENT)
    }

    /// The Rust compiler.
    fn rustc(&self) -> PathBuf {
        self.folder.join("rustc")
    }

    /// What AArch64 programs find as `/`, before they look at the machine's.
    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The environment in which cargo builds for AArch64, and in which QEMU runs what it built.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("RUSTC", self.rustc()),
            (
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc".into(),
            ),
            ("QEMU_LD_PREFIX", self.root()),
        ]
    }

    fn unpack_all(&self) -> Result<(), String> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |e| format!("cannot write `{path}`: {e}")
        };
        let _ = fs::remove_dir_all(&self.folder);
        let (host, root) = (self.folder.join("host"), self.root());
        for folder in [&host, &root] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        let apt = Apt::new(&self.folder.join("apt"))?;
        let std = apt.dependency("libstd-rust-web-dev", "libstd-rust-web-")?;
        let llvm = apt.dependency(&std, "libllvm")?;
        // It does not conflict with any other package, and needs some libraries of the system.
        if !debian::has_package(&llvm) {
            debian::install(&[&llvm])?;
        }
        let compiler = COMPILER.into_iter().map(str::to_owned).chain([std]);
        apt.unpack(&compiler.collect::<Vec<_>>(), &host)?;
        apt.unpack(&LIBRARIES.map(|library| format!("{library}:arm64")), &root)?;

        // The compiler looks for the standard libraries of all targets beside its own.
        let found = host.join("usr/lib/rustlib").join(TRIPLE);
        symlink(root.join("usr/lib/rustlib").join(TRIPLE), &found).map_err(failed(&found))?;
        let (from, to) = (Path::new(C_LIBRARY), root.join("lib"));
        fs::create_dir_all(&to).map_err(failed(&to))?;
        for entry in fs::read_dir(from).map_err(|e| format!("cannot read `{C_LIBRARY}`: {e}"))? {
            let entry = entry.map_err(|e| format!("cannot read `{C_LIBRARY}`: {e}"))?;
            let found = to.join(entry.file_name());
            symlink(entry.path(), &found).map_err(failed(&found))?;
        }
        let rustc = self.rustc();
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH='{0}/usr/lib/x86_64-linux-gnu'\"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\" exec '{0}/usr/bin/rustc' \"$@\"\n",
            host.display()
        );
        fs::write(&rustc, script).map_err(failed(&rustc))?;
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).map_err(failed(&rustc))?;
        status(Command::new(&rustc).arg("--version").stdin(Stdio::null()))?;
        let _ = fs::remove_dir_all(&apt.folder);
        let exports = self
            .environment()
            .map(|(name, value)| format!("export {name}='{}'\n", value.display()));
        fs::write(self.exports(), exports.concat()).map_err(failed(&self.exports()))
    }
}

/// Debian's package lists of both architectures, in a folder of their own.
struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    fn new(folder: &Path) -> Result<Self, String> {
        for name in ["lists/partial", "cache/archives/partial"] {
            let folder = folder.join(name);
            fs::create_dir_all(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
        }
        let at = folder.display();
        let options = [
            "APT::Architecture=amd64".to_owned(),
            "APT::Architectures::=amd64".into(),
            "APT::Architectures::=arm64".into(),
            "APT::Sandbox::User=root".into(),
            format!("Dir::State::Lists={at}/lists"),
            format!("Dir::Cache={at}/cache"),
        ];
        let apt = Self {
            folder: folder.to_owned(),
            options: options
                .into_iter()
                .flat_map(|option| ["-o".into(), option])
                .collect(),
        };
        status(apt.command("apt-get").args(["--quiet", "--quiet", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(&self.options)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// The package whose name begins so and on which `package` depends.
    fn dependency(&self, package: &str, start: &str) -> Result<String, String> {
        let mut command = self.command("apt-cache");
        let output = command.args(["depends", package]).output();
        let output = output.map_err(|e| format!("`apt-cache` does not start: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut depends = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        let found = depends.find(|name| name.starts_with(start));
        found.map(str::to_owned).ok_or_else(|| {
            format!(
                "package {package} depends on no {start}*\nhelp: Debian 12 has it in `bookworm-security`, which `/etc/apt` has to name"
            )
        })
    }

    /// Downloads packages, and unpacks them below `root`.
    fn unpack(&self, packages: &[String], root: &Path) -> Result<(), String> {
        let failed = |e| format!("cannot read `{}`: {e}", self.folder.display());
        status(
            self.command("apt-get")
                .args(["--quiet", "--quiet", "download"])
                .args(packages),
        )?;
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                status(unpack.arg("--extract").arg(&path).arg(root).stdin(Stdio::null()))?;
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        Ok(())
    }
}
