//! What is said of a configuration with mistakes.

use std::path::Path;
use std::process::Command;

use ifuncd::config::{Config, ConfigError, SAMPLE};
use tempfile::TempDir;

const GOOD: &str = "[listen]\naddresses = [\"shm:x\"]\n[[peer]]\nname = \"a\"\nuser = 1\ncapabilities = []\nunsigned = true\n";

/// What is wrong with a text.
fn wrong(text: &str) -> String {
    match Config::of_text(text, Path::new("/nowhere/ifuncd.toml")) {
        Err(error @ ConfigError::Lines(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(config) => panic!("{config:?}"),
    }
}

#[test]
fn the_sample_is_right() {
    let config = Config::of_text(SAMPLE, Path::new("/etc/ifuncd/ifuncd.toml"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.listen.addresses, ["shm:ifuncd"]);
    assert_eq!(config.peers.len(), 1);
    // Every line that is commented out is right, too, but for the files that it names.
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for key in ["ifuncd", "builds"] {
        let secret = ifunc_rt::keys::SecretKey::generate(key).unwrap();
        secret.write_new(path(&format!("{key}.key"))).unwrap();
        secret.public().write(path(&format!("{key}.pub")), key).unwrap();
    }
    let whole: String = SAMPLE
        .lines()
        .filter(|line| !line.starts_with("addresses = ") && !line.contains(".pem"))
        .map(|line| {
            let commented = line.strip_prefix("# ").filter(|rest| {
                rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
            });
            let line = commented.unwrap_or(line);
            let line = line
                .replace("/var/lib/ifuncd/", "")
                .replace("/var/log/ifuncd/", "")
                .replace("/srv/data", ".");
            line.replace("writes-files = false", "writes-files = true")
                .replace("writable = false", "writable = true")
                + "\n"
        })
        .collect();
    let config = Config::of_text(&whole, &folder.path().join("ifuncd.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{whole}"));
    assert_eq!(config.listen.addresses.len(), 2);
    assert!(config.store.is_some() && config.files.is_some() && config.log.audit.is_some());
    assert!(config.peers[0].writes_files && config.signers.len() == 1);
}

#[test]
fn a_mistake_names_line_column_and_key() {
    let change = |from: &str, to: &str| {
        assert!(GOOD.contains(from));
        wrong(&GOOD.replace(from, to))
    };
    insta::assert_snapshot!("unknown_key", change("unsigned", "unsinged"));
    insta::assert_snapshot!("wrong_type", change("user = 1", "user = true"));
    insta::assert_snapshot!("no_toml", change("user = 1", "user = = 1"));
    insta::assert_snapshot!("missing_key", change("capabilities = []\n", ""));
    insta::assert_snapshot!("address", change("shm:x", "http://x"));
    insta::assert_snapshot!("no_key_on_a_network", change("shm:x", "tls://0.0.0.0:7000"));
    insta::assert_snapshot!(
        "capability",
        change("capabilities = []", "capabilities = [\"time\", \"fles\"]")
    );
    insta::assert_snapshot!(
        "capability_without_a_table",
        change("capabilities = []", "capabilities = [\"files\"]")
    );
    insta::assert_snapshot!(
        "nobody",
        "[listen]\naddresses = []\n"
            .parse::<String>()
            .map(|text| wrong(&text))
            .unwrap()
    );
    insta::assert_snapshot!("no_signer", change("unsigned = true\n", ""));
    insta::assert_snapshot!("no_identity", change("user = 1\n", ""));
    insta::assert_snapshot!(
        "size",
        wrong(&format!("{GOOD}[peer.quotas]\nstore-bytes = \"1 MB\"\n"))
    );
    insta::assert_snapshot!("key_file", change("user = 1", "file = \"none.pub\""));
    insta::assert_snapshot!(
        "several",
        wrong(&format!(
            "{GOOD}[[peer]]\nname = \"a\"\nuser = 1\ncapabilities = []\nunsigned = true\nfolder = \"../x\"\nwrites-files = true\n\
             [faults]\nlevel = \"none\"\nmax-run-time = \"2s\"\n[metrics]\naddress = \"here\"\n[store]\nfile = \"/nowhere/at/all\"\n[files]\nfolder = \"/nowhere\"\n"
        ))
    );
}

#[test]
fn a_drain_has_an_end() {
    let text = |drain: &str| GOOD.replace("[listen]\n", &format!("[listen]\ndrain = \"{drain}\"\n"));
    for long in ["1441min", "18446744073709551615s", "307445734561825860min"] {
        let why = wrong(&text(long));
        assert!(
            why.contains("`listen.drain`: a daemon that stops waits for a day at most"),
            "{why}"
        );
    }
    let config = Config::of_text(&text("1440min"), Path::new("/nowhere/ifuncd.toml"));
    assert_eq!(config.unwrap().listen.drain.as_secs(), 86_400);
}

#[test]
fn another_key_in_the_same_file_is_a_change() {
    let folder = TempDir::new().unwrap();
    let (file, key) = (
        folder.path().join("ifuncd.toml"),
        folder.path().join("ifuncd.key"),
    );
    let read = || {
        let text = GOOD.replace("[listen]\n", "[listen]\nkey = \"ifuncd.key\"\n");
        Config::of_text(&text, &file).unwrap_or_else(|error| panic!("{error}"))
    };
    let write = || {
        let secret = ifunc_rt::keys::SecretKey::generate("ifuncd").unwrap();
        secret.write_new(&key).unwrap();
    };
    write();
    let before = read();
    assert!(before.differs_in_fixed(&read()).is_empty());
    std::fs::remove_file(&key).unwrap();
    write();
    assert_eq!(
        before.differs_in_fixed(&read()),
        ["`listen.key` and `listen.certificate`"]
    );
}

#[test]
fn the_command_says_it() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ifuncd.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_ifuncd"));
        check
            .arg("--check-config")
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap()
    };
    let right = check(GOOD);
    assert!(right.status.success());
    assert_eq!(
        String::from_utf8_lossy(&right.stdout),
        format!("{}: ok\n", file.display())
    );
    let wrong = check(&GOOD.replace("unsigned", "unsinged"));
    assert_eq!(wrong.status.code(), Some(1));
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(text.contains("ifuncd.toml:7:1: `peer.unsinged`"), "{text}");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let mut untrusted = Command::new(env!("CARGO_BIN_EXE_ifuncd"));
    let untrusted = untrusted
        .arg("--check-config")
        .arg("--config")
        .arg(&file)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&untrusted.stderr).contains("may be changed by other users"));
    let man = Command::new(env!("CARGO_BIN_EXE_ifuncd"))
        .arg("--man")
        .output()
        .unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("package/ifuncd.8");
    let expected = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(
        String::from_utf8_lossy(&man.stdout),
        expected,
        "help: `ifuncd --man > {}`",
        page.display()
    );
    let sample = Command::new(env!("CARGO_BIN_EXE_ifuncd"))
        .arg("--sample-config")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&sample.stdout), SAMPLE);
}
