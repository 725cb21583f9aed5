//! The files of a project, from `template/`.

use std::path::PathBuf;

use crate::cli::Lang;

/// Where the project finds `ifunc` and `ifunc-rt`.
pub(super) enum Dependencies {
    /// In a checkout.
    Path(PathBuf),
    /// In a git repository.
    Git(String),
    /// On crates.io, beside this command: in this version.
    Published,
}

impl Dependencies {
    /// The right-hand side of `krate = …`.
    fn line(&self, krate: &str) -> String {
        match self {
            Self::Path(checkout) => format!(
                "{{ path = {} }}",
                quoted(&checkout.join(krate).display().to_string())
            ),
            Self::Git(url) => format!("{{ git = {} }}", quoted(url)),
            Self::Published => quoted(env!("CARGO_PKG_VERSION")),
        }
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("template/", $path))
    };
}

/// Paths below the project's folder, and what stands there.
pub(super) fn files(name: &str, lang: Lang, dependencies: &Dependencies) -> Vec<(&'static str, String)> {
    let (lib, host) = match lang {
        Lang::Rust => (template!("ifuncs_rust.rs"), template!("host_rust.rs")),
        Lang::C => (template!("ifuncs_c.rs"), template!("host_c.rs")),
        Lang::Mixed => (template!("ifuncs_mixed.rs"), template!("host_mixed.rs")),
    };
    let readme = match lang {
        Lang::Rust => template!("README_rust.md"),
        Lang::C | Lang::Mixed => template!("README.md"),
    };
    let mut files = vec![
        ("Cargo.toml", template!("workspace.toml")),
        (".gitignore", template!("gitignore")),
        ("README.md", readme),
        ("ifuncs/Cargo.toml", template!("ifuncs.toml")),
        ("ifuncs/src/lib.rs", lib),
        ("host/Cargo.toml", template!("host.toml")),
        ("host/src/lib.rs", host),
        ("host/src/bin/target.rs", template!("bin_target.rs")),
        ("host/src/bin/source.rs", template!("bin_source.rs")),
        ("host/src/bin/both.rs", template!("bin_both.rs")),
    ];
    if lang != Lang::Rust {
        files.push(("ifuncs/c/c_add.c", template!("c_add.c")));
        files.push(("ifuncs/tests/c_add.rs", template!("test_c.rs")));
    }
    if lang == Lang::Mixed {
        files.push(("ifuncs/tests/add.rs", template!("test_rust.rs")));
    }
    // In Rust, ifuncs run on a type of the host, and so do their tests.
    if lang == Lang::Rust {
        files.push(("host/tests/ifuncs.rs", template!("test_host.rs")));
    }
    let (tested, dev_dependencies) = match lang {
        Lang::Rust => ("host/Cargo.toml", template!("host_rust.toml")),
        Lang::C | Lang::Mixed => ("ifuncs/Cargo.toml", template!("ifuncs_tested.toml")),
    };
    let ifuncs = format!("{name}-ifuncs");
    let krate = |package: &str| package.replace('-', "_");
    let fill = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{crate}}", &krate(name))
            .replace("{{ifuncs}}", &ifuncs)
            .replace("{{ifuncs_crate}}", &krate(&ifuncs))
            .replace("{{ifunc}}", &dependencies.line("ifunc"))
            .replace("{{ifunc_rt}}", &dependencies.line("ifunc-rt"))
            .replace("{{ifunc_test}}", &dependencies.line("ifunc-test"))
    };
    let with_tests = |path: &str, text: &str| match path == tested {
        true => [text, dev_dependencies].concat(),
        false => text.to_owned(),
    };
    files
        .into_iter()
        .map(|(path, text)| (path, fill(&with_tests(path, text))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_no_hole_open() {
        for lang in [Lang::Rust, Lang::C, Lang::Mixed] {
            for (path, text) in files("my-counter", lang, &Dependencies::Git("file:///x".into())) {
                assert!(!text.contains("{{") && !text.contains("}}"), "{path}:\n{text}");
            }
        }
    }

    #[test]
    fn a_published_command_depends_on_what_was_published_with_it() {
        assert_eq!(
            Dependencies::Published.line("ifunc"),
            concat!('"', env!("CARGO_PKG_VERSION"), '"')
        );
    }

    #[test]
    fn quotes_paths() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000A""#);
    }
}
