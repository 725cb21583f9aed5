//! What a policy file may say, and what is said of what it may not.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::keys::SecretKey;

fn parse(text: &str) -> Result<Policy, String> {
    // SAFETY: no target uses it.
    unsafe { Policy::from_toml(text) }.map_err(|error| {
        assert!(matches!(error, PolicyFileError::Line { .. }), "{error:?}");
        error.to_string()
    })
}

/// The policy in the chapter on security.
#[test]
fn the_policy_of_the_book_parses() {
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/security.md");
    let chapter = std::fs::read_to_string(chapter).unwrap();
    let (_, text) = chapter.split_once("```toml policy\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let public = SecretKey::from_seed([1; 32], "").public();
    let text = text.replace("file = \"builds.pub\"", &format!("public = \"{public}\""));
    assert!(text.contains("public = "), "{text}");
    let _policy = parse(&text).unwrap();
}

#[test]
fn everything_can_be_said() {
    let folder = std::env::temp_dir().join(format!("ifunc-policy-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let key = |seed| SecretKey::from_seed([seed; 32], "").public();
    key(1).write(folder.join("builds.pub"), "builds").unwrap();
    let text = format!(
        r#"
        revoked = ["{}"]
        [connect]
        users = [1001]
        addresses = ["10.1.0.0/16"]
        [[connect.key]]
        name = "ada"
        file = "builds.pub"
        [quotas]
        image-bytes = 1
        code-bytes = 2
        images = 3
        payload-bytes = 4
        answer-bytes = 5
        in-flight = 6
        installs-per-second = 7
        invocations-per-second = 8
        run-time = "9ms"
        run-time-per-second = "10ms"
        [faults]
        level = "contained"
        max-run-time = "20ms"
        stack-bytes = 1_048_576
        [[key]]
        name = "builds"
        file = "builds.pub"
        [[key]]
        name = "analysts"
        public = "{}"
        imports = ["kv_get", "log_*"]
        pure = true
        quotas = {{ images = 8 }}
        [unsigned.same-user]
        imports = []
        "#,
        key(3),
        key(2)
    );
    let path = folder.join("policy.toml");
    std::fs::write(&path, &text).unwrap();
    // SAFETY: no target uses it.
    let read = || unsafe { Policy::read(&path) };
    let found = read().unwrap();
    let quotas = Quotas {
        image_bytes: 1,
        code_bytes: 2,
        images: 3,
        payload_bytes: 4,
        answer_bytes: 5,
        in_flight: 6,
        installs_per_second: 7,
        invocations_per_second: 8,
        run_time: Duration::from_millis(9),
        run_time_per_second: Duration::from_millis(10),
    };
    let grant = Grant::new().imports(["kv_get", "log_*"]).pure();
    // SAFETY: no target uses it.
    let expected = unsafe {
        Policy::new()
            .accept_key("builds", key(1), Grant::new())
            .accept_key("analysts", key(2), grant.quotas(Quotas::UNLIMITED.images(8)))
            .accept_unsigned(Unsigned::SameUser, Grant::new().imports([""; 0]))
    };
    let expected = expected
        .connect_users([1001])
        .connect_key("ada", key(1))
        .connect_from(["10.1.0.0/16".parse().unwrap()])
        .revoke(key(3))
        .quotas(quotas)
        .level(Level::Contained)
        .max_run_time(Duration::from_millis(20))
        .stack(1 << 20);
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
    assert_eq!(
        format!("{:#?}", parse("").unwrap()),
        format!("{:#?}", Policy::new())
    );
    // No address, not every address.
    let nowhere = parse("[connect]\naddresses = []").unwrap();
    assert!(!nowhere.connect.admits_address(Some([127, 0, 0, 1].into())));

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let error = read().unwrap_err();
    assert!(matches!(error, PolicyFileError::Untrusted { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("mode is 666") && error.contains("chmod go-w"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
    let error = read().unwrap_err();
    assert!(matches!(error, PolicyFileError::Read { .. }), "{error}");
    assert!(
        error.to_string().starts_with("cannot read the policy `"),
        "{error}"
    );
}

/// Each key alone, and all of them.
#[test]
fn each_key_of_runners_is_an_option() {
    let new = RunnerOptions::new;
    let minutes = Duration::from_secs(180);
    let each = [
        ("program = \"bin/runner\"", new().program("bin/runner")),
        ("program = \"/opt/runner\"", new().program("/opt/runner")),
        ("memory-bytes = 1_048_576", new().memory(1 << 20)),
        ("cpu-time = \"3min\"", new().cpu_time(minutes)),
        ("max-runners = 7", new().max_runners(7)),
        ("without-landlock = true", new().without_landlock(true)),
        ("without-landlock = false", new()),
        (
            "program = \"r\"\nmemory-bytes = 5\ncpu-time = \"3min\"\nmax-runners = 0\nwithout-landlock = true",
            new()
                .program("r")
                .memory(5)
                .cpu_time(minutes)
                .max_runners(0)
                .without_landlock(true),
        ),
    ];
    for (text, options) in each {
        let found = parse(&format!("[faults]\nlevel = \"process\"\n[runners]\n{text}\n")).unwrap();
        let expected = Policy::new().level(Level::Process).runners(options);
        assert_eq!(format!("{found:#?}"), format!("{expected:#?}"), "{text}");
    }
    // Relative to the file, not to where the target was started.
    let text = "[runners]\nprogram = \"runner\"";
    // SAFETY: no target uses it.
    let found = unsafe { Policy::of_text(text, Path::new("/etc/ifunc/policy.toml")) }.unwrap();
    let expected = Policy::new().runners(new().program("/etc/ifunc/runner"));
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_to_write() {
    for (text, line, why, help) in [
        (
            "[connect]\nusrs = [1]",
            2,
            "unknown field `usrs`",
            "expected one of `users`, `any-user`, `addresses`, `key`, `certificate`",
        ),
        (
            "[connect]\nusers = \"all\"",
            2,
            "invalid type",
            "write `users = [1001, 1002]`",
        ),
        (
            "[connect]\naddresses = [\"10.1.2.0/16\"]",
            2,
            "`10.1.2.0/16` is not a range",
            "write `addresses = ",
        ),
        ("[quotas]\nimages = -1", 2, "invalid value", "write `images = 64`"),
        (
            "[quotas]\nimages = \"many\"",
            2,
            "invalid type",
            "write `images = 64`",
        ),
        (
            "[faults]\n\nlevel = \"none\"",
            3,
            "no level `none`",
            "`level = \"contained\"`",
        ),
        (
            "[faults]\nmax-run-time = \"2 days\"",
            2,
            "`2 days` is not a time",
            "`max-run-time = \"2s\"`",
        ),
        (
            "[faults]\nlevel = \"runners\"",
            2,
            "no level `runners`",
            "or `level = \"process\"`",
        ),
        (
            "[runners]\nmemory = 1",
            2,
            "unknown field `memory`",
            "`program`, `memory-bytes`, `cpu-time`, `max-runners`, `without-landlock`",
        ),
        (
            "[runners]\nprogram = 1",
            2,
            "invalid type",
            "write `program = \"/usr/bin/ifunc-runner\"`",
        ),
        (
            "[runners]\nmemory-bytes = \"256M\"",
            2,
            "invalid type",
            "write `memory-bytes = 268_435_456`",
        ),
        (
            "[runners]\nmemory-bytes = -1",
            2,
            "invalid value",
            "write `memory-bytes = 268_435_456`",
        ),
        (
            "[runners]\nmax-runners = 2\ncpu-time = \"ten\"",
            3,
            "`ten` is not a time",
            "write `cpu-time = \"10min\"`",
        ),
        (
            "[runners]\ncpu-time = 10",
            2,
            "invalid type",
            "write `cpu-time = \"10min\"`",
        ),
        (
            "[runners]\n\nmax-runners = -1",
            3,
            "invalid value",
            "write `max-runners = 64`",
        ),
        (
            "[runners]\nwithout-landlock = \"yes\"",
            2,
            "invalid type",
            "write `without-landlock = true`",
        ),
        (
            "[[key]]\nname = \"a\"",
            2,
            "either `public` or `file`",
            "file = \"builds.pub\"",
        ),
        (
            "[[connect.key]]\nname = \"a\"",
            2,
            "either `public` or `file`",
            "file = \"builds.pub\"",
        ),
        (
            "[[connect.key]]\n",
            1,
            "missing field `name`",
            "file = \"ada.pub\"",
        ),
        (
            "[[key]]\npure = true",
            1,
            "missing field `name`",
            "`name = \"builds\"`",
        ),
        (
            "[[key]]\nname = \"a\"\nfile = \"/no/such\"",
            3,
            "cannot read",
            "relative to the policy",
        ),
        (
            "revoked = [\"12\"]",
            1,
            "`12` is not a public key",
            "64 hexadecimal digits",
        ),
        (
            "[unsigned]\nall = {}",
            2,
            "unknown field `all`",
            "`same-user` or `every-peer`",
        ),
        ("[connect\n", 1, "", "|"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(&format!("line {line}: ")), "{text}: {error}");
        assert!(error.contains(why) && error.contains(help), "{text}: {error}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn certificates_that_connect_are_named_by_files() {
    use crate::transport::authority::{Authority, Says};

    let authority = Authority::new("policy", 20);
    let _ = authority.own_file();
    authority.revoke(&[7]);
    let certified = |names: &[&str], serial| {
        let says = Says {
            serial,
            ..Says::names(names)
        };
        authority.certificate(&SecretKey::from_seed([1; 32], ""), &says)
    };
    let read = |text: &str| {
        let path = authority.file("policy.toml", text);
        // SAFETY: no target uses it.
        unsafe { Policy::read(path) }
    };
    let head = "[[connect.certificate]]\nca = \"authority.pem\"\n";
    let policy = read(&format!(
        "{head}names = [\"ada.example\"]\n{head}revoked = \"revoked.pem\"\n"
    ))
    .unwrap();
    for (names, serial, is_admitted) in [
        (&["ada.example"][..], 7, true),
        (&["bob.example"], 7, false),
        (&["bob.example"], 8, true),
    ] {
        let admitted = policy
            .connect
            .admits_certificate(certified(names, serial).chain());
        assert_eq!(admitted.as_deref().ok(), is_admitted.then_some(names[0]));
    }
    for (text, line, why) in [
        (
            format!("{head}names = [\n  \"*.example\"]"),
            4,
            "`*.example` is not a name",
        ),
        (
            format!("{head}revoked = \"authority.pem\""),
            3,
            "no list of revoked certificates",
        ),
        (
            "[[connect.certificate]]\nca = \"policy.toml\"".to_owned(),
            2,
            "holds no certificate",
        ),
        (
            "[[connect.certificate]]\nnames = []".to_owned(),
            1,
            "missing field `ca`",
        ),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(
            error.contains(&format!("line {line}: ")) && error.contains(why),
            "{error}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed(text in "[ -~\n]{0,200}") {
        let _ = parse(&text);
    }
}
