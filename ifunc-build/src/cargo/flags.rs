//! `[package.metadata.ifunc] cfg` and `rustflags`: what a package adds to the compiler's flags in its image builds, for itself and
//! for its dependencies. A flag that would break an image, or make it another one than the builder states, is refused.

/// Names of `cfg` that the compiler or cargo sets.
const RESERVED_CFG: [&str; 15] = [
    "clippy",
    "debug_assertions",
    "doc",
    "doctest",
    "feature",
    "miri",
    "overflow_checks",
    "panic",
    "proc_macro",
    "relocation_model",
    "sanitize",
    "test",
    "ub_checks",
    "unix",
    "windows",
];

/// Options of `-C` that change speed or size alone, or add checks.
const CODEGEN: [&str; 5] = [
    "debug-assertions",
    "force-frame-pointers",
    "no-vectorize-loops",
    "no-vectorize-slp",
    "overflow-checks",
];

/// Well-known options of `-C` that an image cannot have, and why.
const REFUSED: [(&str, &str); 15] = [
    ("code-model", "the linker of images knows one code model"),
    (
        "codegen-units",
        "an image is linked from one unit, which the builder chooses",
    ),
    (
        "embed-bitcode",
        "link-time optimisation needs it, and the builder chooses that: `--no-lto`",
    ),
    (
        "instrument-coverage",
        "its counters need a runtime that images do not have",
    ),
    ("link-arg", "no linker of the system links an image"),
    ("link-args", "no linker of the system links an image"),
    ("linker", "no linker of the system links an image"),
    ("lto", "the builder chooses it: `--no-lto`"),
    ("opt-level", "the builder chooses it: `--opt-level`"),
    (
        "panic",
        "a panic of an ifunc ends its invocation: images do not unwind",
    ),
    ("prefer-dynamic", "an image has no libraries to load"),
    (
        "profile-generate",
        "its counters need a runtime that images do not have",
    ),
    (
        "relocation-model",
        "an image runs at whatever address it is loaded",
    ),
    (
        "target-cpu",
        "the image would not state the CPU features that it needs; help: `cpu` in `[package.metadata.ifunc]` states it",
    ),
    (
        "target-feature",
        "the image would not state the CPU features that it needs; help: `cpu` in `[package.metadata.ifunc]` states a level, and \
         `#[target_feature]` on a function with a check at run time needs none",
    ),
];

/// The flags of the configuration: each entry is `name` or `name="value"`.
pub(super) fn of_cfg(entries: &[String]) -> Result<Vec<String>, String> {
    let mut flags = Vec::new();
    for entry in entries {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (entry.trim(), None),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let text = value.map(|value| value.strip_prefix('"').and_then(|value| value.strip_suffix('"')));
        let is_text = |text: &str| !text.contains(['"', '\\', '\x1f', '\n']);
        if !is_name || text.is_some_and(|text| text.is_none_or(|text| !is_text(text))) {
            return Err(format!(
                "`cfg`: `{entry}` is neither `name` nor `name=\"value\"`\nhelp: `cfg = ['getrandom_backend=\"custom\"', 'tracing_off']`"
            ));
        }
        if RESERVED_CFG.contains(&name) || name.starts_with("target_") || name.starts_with("ifunc_") {
            return Err(format!(
                "`cfg`: `{name}` is set by the compiler or by the builder\nhelp: choose another name; features of the package are \
                 chosen by `--features`"
            ));
        }
        flags.push(match text.flatten() {
            Some(text) => format!("--cfg={name}=\"{text}\""),
            None => format!("--cfg={name}"),
        });
        // So that the package's own code may ask for it.
        flags.push(match text.flatten() {
            Some(text) => format!("--check-cfg=cfg({name},values(\"{text}\"))"),
            None => format!("--check-cfg=cfg({name})"),
        });
    }
    Ok(flags)
}

/// The flags of `rustflags`, joined to one argument each.
pub(super) fn of_rustflags(entries: &[String]) -> Result<Vec<String>, String> {
    let refuse = |flag: &str, why: &str| Err(format!("`rustflags`: `{flag}` is refused: {why}"));
    let mut flags = Vec::new();
    let mut entries = entries.iter();
    while let Some(entry) = entries.next() {
        if entry.contains('\x1f') {
            return refuse(entry, "it holds a control character");
        }
        let lint = ["-A", "-W", "-D", "-F"]
            .iter()
            .any(|&flag| entry.starts_with(flag));
        let takes_value = lint && entry.len() == 2
            || [
                "-C",
                "--codegen",
                "--check-cfg",
                "--cap-lints",
                "--remap-path-prefix",
            ]
            .contains(&&**entry);
        let value = if takes_value {
            match entries.next() {
                Some(value) => Some(value),
                None => return refuse(entry, "its value is missing"),
            }
        } else {
            None
        };
        let long = entry
            .strip_prefix("--codegen")
            .map(|rest| rest.trim_start_matches('='));
        let codegen = match (&**entry, value) {
            ("-C" | "--codegen", Some(value)) => Some(&**value),
            _ => long.or_else(|| entry.strip_prefix("-C")),
        };
        if let Some(option) = codegen {
            let name = option
                .split_once('=')
                .map_or(option, |(name, _)| name)
                .replace('_', "-");
            if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                return refuse(&format!("-C{option}"), why);
            }
            if !CODEGEN.contains(&&*name) {
                return refuse(
                    &format!("-C{option}"),
                    &format!(
                        "it is not known to leave an image valid; help: these options of `-C` are accepted: {}",
                        CODEGEN.join(", ")
                    ),
                );
            }
            flags.push(format!("-C{option}"));
            continue;
        }
        let is_cfg = entry == "--cfg" || entry.starts_with("--cfg=");
        if is_cfg {
            return refuse(
                entry,
                "configuration has a key of its own; help: `cfg = ['name=\"value\"']`",
            );
        }
        let is_known = lint
            || ["--check-cfg", "--cap-lints", "--remap-path-prefix"]
                .iter()
                .any(|flag| {
                    entry == flag || entry.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
                });
        if !is_known {
            return refuse(
                entry,
                "the builder chooses what is compiled, for which target, and what comes out; help: accepted are lints (`-A`, `-W`, \
                 `-D`, `-F`, `--cap-lints`), `--check-cfg`, `--remap-path-prefix` and some of `-C`",
            );
        }
        flags.push(match value {
            Some(value) if lint => format!("{entry}{value}"),
            Some(value) => format!("{entry}={value}"),
            None => entry.clone(),
        });
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::{CODEGEN, REFUSED, of_cfg, of_rustflags};

    fn list(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|&entry| entry.into()).collect()
    }

    #[test]
    fn cfg_is_passed_with_its_check() {
        assert_eq!(
            of_cfg(&list(&["getrandom_backend=\"custom\"", "fast"])).unwrap(),
            [
                "--cfg=getrandom_backend=\"custom\"",
                "--check-cfg=cfg(getrandom_backend,values(\"custom\"))",
                "--cfg=fast",
                "--check-cfg=cfg(fast)"
            ]
        );
        for (entry, why) in [
            ("a=b", "neither"),
            ("a-b", "neither"),
            ("", "neither"),
            ("a=\"b\" --cfg=\"c\"", "neither"),
            ("ifunc_image", "the builder"),
            ("target_os=\"linux\"", "the compiler"),
            ("test", "the compiler"),
            ("feature=\"x\"", "--features"),
        ] {
            let error = of_cfg(&list(&[entry])).unwrap_err();
            assert!(error.contains(why) && error.contains("help: "), "{error}");
        }
    }

    #[test]
    fn flags_that_keep_an_image_are_passed() {
        let given = [
            "-Adead_code",
            "-W",
            "unused",
            "-C",
            "force_frame_pointers=yes",
            "-Coverflow-checks=on",
            "--codegen=no-vectorize-loops",
            "--check-cfg",
            "cfg(x)",
            "--cap-lints=warn",
        ];
        assert_eq!(
            of_rustflags(&list(&given)).unwrap(),
            [
                "-Adead_code",
                "-Wunused",
                "-Cforce_frame_pointers=yes",
                "-Coverflow-checks=on",
                "-Cno-vectorize-loops",
                "--check-cfg=cfg(x)",
                "--cap-lints=warn"
            ]
        );
    }

    #[test]
    fn flags_that_would_break_an_image_are_refused_with_the_reason() {
        for (given, why) in [
            (&["-Cpanic=unwind"][..], "do not unwind"),
            (&["-C", "relocation-model=static"], "whatever address"),
            (&["--codegen", "target_cpu=native"], "`cpu` in"),
            (&["-Ctarget-feature=+avx2"], "`cpu` in"),
            (&["-Clink-arg=-lz"], "no linker"),
            (&["-Csave-temps"], "not known"),
            (&["--cfg=x"], "key of its own"),
            (&["--cfg", "x"], "key of its own"),
            (&["--target=wasm32-unknown-unknown"], "the builder chooses"),
            (&["-Zsanitizer=address"], "the builder chooses"),
            (&["--emit=asm"], "the builder chooses"),
            (&["-o", "x"], "the builder chooses"),
            (&["-C"], "its value is missing"),
            (&["-A\x1f--cfg=x"], "control character"),
        ] {
            let error = of_rustflags(&list(given)).unwrap_err();
            assert!(error.contains(why), "{given:?}: {error}");
        }
        assert!(REFUSED.iter().all(|(name, _)| !CODEGEN.contains(name)));
    }
}
