//! `doctor` on the machine that runs the tests, which has what they need.

use crate::common::{checkout, command, ran};
use serde_json::Value;

fn mark<'v>(report: &'v Value, name: &str) -> &'v str {
    report["areas"]
        .as_array()
        .expect("areas")
        .iter()
        .flat_map(|area| area["checks"].as_array().expect("checks"))
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no check `{name}` in {report}"))["mark"]
        .as_str()
        .expect("a mark")
}

#[test]
fn requirements_of_the_tests_are_met() {
    let doctor = ran(&mut command(&checkout(), &["doctor", "--json"])).succeeded();
    let report: Value = serde_json::from_str(&doctor.out).expect("JSON");
    assert_eq!(report["ok"], true);
    for name in [
        "rustc",
        "cargo",
        "C compiler",
        "C library",
        "code memory",
        "system",
    ] {
        assert_eq!(mark(&report, name), "ok", "{name}");
    }
    let text = ran(&mut command(&checkout(), &["doctor"])).succeeded().out;
    assert!(text.starts_with("toolchain\n  ok       rustc "), "{text}");
    // UCX reports its transports where it is installed.
    match mark(&report, "UCX") {
        "ok" => {
            assert_eq!(mark(&report, "UCX transports"), "ok", "{text}");
            assert!(text.contains("tcp/lo"), "{text}");
        }
        _ => assert!(text.contains("only networks need it: "), "{text}"),
    }
    // It starts one.
    assert_eq!(mark(&report, "runner processes"), "ok", "{text}");
    assert!(
        text.contains("confined by seccomp and Landlock (version "),
        "{text}"
    );
    assert!(text.contains("nothing required is missing"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn a_missing_requirement_fails() {
    let folder = tempfile::tempdir().expect("folder");
    let mut without = command(&checkout(), &["doctor"]);
    without
        .env("CC", "there-is-no-such-compiler")
        // Of another architecture: not required.
        .env("CC_aarch64_unknown_linux_gnu", "no-cross-compiler")
        .env("IFUNC_LIB_DIR", folder.path());
    let doctor = ran(&mut without);
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    for text in [
        "missing  C compiler         `there-is-no-such-compiler` does not start",
        "apt-get install gcc",
        "warning  IFUNC_LIB_DIR",
        "-        C                  cannot run `no-cross-compiler`",
        "required and missing: 1",
    ] {
        assert!(doctor.out.contains(text), "{text} in\n{}", doctor.out);
    }
    let report = ran(without.arg("--json")).out;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["ok"], false);
    assert_eq!(mark(&report, "C compiler"), "missing");
    assert_eq!(mark(&report, "C"), "none");
}
