//! Compiles the rust blocks of all pages at once, as modules of two packages, and the C blocks; reads the manifests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Page;
use crate::blocks::Block;
use crate::process::{OUR_PROFILE, cargo, status};

/// The sources of the two packages.
#[derive(Default)]
struct Sources {
    ifuncs: String,
    host: String,
    blocks: usize,
}

/// Compiles and reads what is no file of a page's project.
pub(super) fn all(pages: &[Page]) -> Result<String, String> {
    let folder = crate::scratch().join("readme");
    let _ = fs::remove_dir_all(folder.join("ifuncs/src"));
    let _ = fs::remove_dir_all(folder.join("host/src"));
    let mut sources = Sources::default();
    let mut others = 0;
    for page in pages {
        sources.add(&folder, page)?;
        for block in page.blocks().iter().filter(|block| is_ours(block)) {
            match block.language() {
                "c" => c(&folder, page, block)?,
                // A test of the runtime reads policies.
                "toml" if !block.has("policy") => manifest(&folder, page, block)?,
                _ => continue,
            }
            others += 1;
        }
    }
    sources.check(&folder)?;
    Ok(format!("{} blocks of Rust, {others} others", sources.blocks))
}

fn is_ours(block: &Block<'_>) -> bool {
    !block.is_only_read() && block.file().is_none()
}

impl Sources {
    /// Adds the blocks of a page: each is a module, and sees the ifuncs of the page's earlier blocks. For hosts they are
    /// the crate `hello_ifuncs`.
    fn add(&mut self, folder: &Path, page: &Page) -> Result<(), String> {
        let name = page.module();
        let (mut ifuncs, mut host) = (String::new(), String::new());
        for block in page.blocks().iter().filter(|block| is_ours(block)) {
            if block.language() != "rust" {
                continue;
            }
            self.blocks += 1;
            let module = format!("line_{}", block.line);
            let path = format!("{name}/{module}.rs");
            if block.text.starts_with("#![no_std]") || block.has("ifuncs") {
                let text = block.text.replacen("#![no_std]\n", "", 1);
                write(
                    &folder.join("ifuncs/src").join(&path),
                    &format!("#[allow(unused_imports)]\nuse super::*;\n{text}"),
                )?;
                let _ = write!(ifuncs, "    pub mod {module};\n    pub use {module}::*;\n");
            } else {
                let text = match block.has("body") {
                    false => block.text.clone(),
                    true => format!(
                        "#[allow(unused_variables, unused_mut)]\npub fn body(addr: &str, source: &ifunc_rt::Source) \
                         -> Result<(), Box<dyn std::error::Error>> {{\n{}Ok(())\n}}\n",
                        block.text
                    ),
                };
                let imports = "#[allow(unused_imports)]\nuse super::hello_ifuncs;\n";
                write(&folder.join("host/src").join(&path), &format!("{imports}{text}"))?;
                let _ = writeln!(host, "    pub mod {module};");
            }
        }
        // A page without ifuncs of its own uses those of README.md.
        let of = match ifuncs.is_empty() {
            true => "page_readme",
            false => &name,
        };
        const ALLOWED: &str = "#[allow(ambiguous_glob_reexports, dead_code)]\n";
        let _ = write!(self.ifuncs, "{ALLOWED}pub mod {name} {{\n{ifuncs}}}\n");
        let _ = write!(
            self.host,
            "{ALLOWED}pub mod {name} {{\n    #[allow(unused_imports)]\n    use book_ifuncs::{of} as hello_ifuncs;\n{host}}}\n"
        );
        Ok(())
    }

    fn check(&self, folder: &Path) -> Result<(), String> {
        let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
        let krate = |name: &str, more: &str| format!("{name} = {{ path = {:?}{more} }}\n", root.join(name));
        let package = |name: &str, dependencies: String| {
            format!(
                "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[lints.rust]\nwarnings = \"deny\"\n\n\
                 [dependencies]\n{dependencies}"
            )
        };
        let ifunc = krate("ifunc", ", features = [\"alloc\"]");
        let host = ifunc.clone()
            + &krate("ifunc-rt", "")
            + &krate("ifunc-test", "")
            + "book-ifuncs = { path = \"../ifuncs\" }\n";
        let workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"ifuncs\", \"host\"]\n";
        for (path, text) in [
            ("Cargo.toml", workspace),
            ("ifuncs/Cargo.toml", &package("book-ifuncs", ifunc)),
            ("ifuncs/src/lib.rs", &format!("#![no_std]\n\n{}", self.ifuncs)),
            ("host/Cargo.toml", &package("book-host", host)),
            ("host/src/lib.rs", &self.host),
        ] {
            write(&folder.join(path), text)?;
        }
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))
            .map_err(|e| format!("cannot copy `Cargo.lock`: {e}"))?;
        let mut check = cargo(["check", "--quiet", "--workspace", "--tests", "--offline"]);
        check
            .args(OUR_PROFILE)
            .current_dir(folder)
            .env("CARGO_TARGET_DIR", crate::target());
        status(&mut check)
    }
}

/// Compiles a C block as `cargo ifunc build` does, with all warnings.
fn c(folder: &Path, page: &Page, block: &Block<'_>) -> Result<(), String> {
    let file = place(folder, page, block).with_extension("c");
    write(&file, &block.text)?;
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c"])
        .arg(&file)
        .arg("-o")
        .arg(file.with_extension("o"));
    for include in ["ifunc-build/include", "ifunc-capi/include"] {
        cc.arg("-I").arg(crate::root().join(include));
    }
    status(cc.stdin(Stdio::null()))
}

/// Has cargo read a manifest; one of no package gets a name.
fn manifest(folder: &Path, page: &Page, block: &Block<'_>) -> Result<(), String> {
    let package = place(folder, page, block);
    let mut text = String::new();
    if !block.text.contains("[package]") {
        text.push_str("[package]\nname = \"block\"\nedition = \"2024\"\n\n");
    }
    text.push_str(&block.text);
    if !block.text.contains("[workspace]") {
        text.push_str("\n[workspace]\n");
    }
    write(&package.join("Cargo.toml"), &text)?;
    write(&package.join("src/lib.rs"), "")?;
    let mut read = cargo(["read-manifest"]);
    read.current_dir(&package).stdout(Stdio::null());
    crate::process::output(&mut read)
        .map(|_| ())
        .map_err(|why| format!("{}:{}: {why}", page.name, block.line))
}

fn place(folder: &Path, page: &Page, block: &Block<'_>) -> PathBuf {
    folder.join(format!("others/{}-{}", page.module(), block.line))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let io = |e: std::io::Error| format!("cannot write `{}`: {e}", path.display());
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(io)?;
    fs::write(path, text).map_err(io)
}
