//! The files of keys and signatures.

use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::str::FromStr;

use super::{Hex, KeyError, PublicKey, SecretKey, Signature, Signatures, hex, signature};

const PUBLIC: &str = "ifunc-public-key";
const SECRET: &str = "ifunc-secret-key";
const SIGNATURE: &str = "ifunc-signature";
const ED25519: &str = "ed25519";
/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// Mode of a file that holds a secret key.
const OWNER_ONLY: u32 = 0o600;

impl PublicKey {
    /// Reads a file that `cargo ifunc keygen` wrote: the key and its name.
    ///
    /// # Errors
    /// The file cannot be read, or holds no public key.
    pub fn read(path: impl AsRef<Path>) -> Result<(Self, String), KeyError> {
        let path = path.as_ref();
        only(&read(path)?, path, PUBLIC, |fields| match fields {
            [key, name @ ..] => Ok((key.parse()?, name.join(" "))),
            [] => Err(KeyError::Form(form_of(PUBLIC))),
        })
    }

    /// Writes a file that [`read`](Self::read) reads. The name is a note for people.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, name: &str) -> Result<(), KeyError> {
        let path = path.as_ref();
        let text = format!("{PUBLIC} {ED25519} {self} {}\n", one_line(name));
        std::fs::write(path, text).map_err(|error| cannot("write", path, error))
    }
}

impl SecretKey {
    /// Reads a file that `cargo ifunc keygen` wrote. With the cargo feature `tls`, also one in PEM, as `openssl genpkey -algorithm
    /// ed25519` writes it; its name is that of the file.
    ///
    /// # Errors
    /// The file cannot be read or holds no secret key, or other users may read it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let text = read(path)?;
        let key = match Self::of_pem(&text, path) {
            Some(key) => key?,
            None => only(&text, path, SECRET, |fields| match fields {
                [seed, name @ ..] => match hex::parse(seed) {
                    Some(seed) => Ok(Self::from_seed(seed, name.join(" "))),
                    None => Err(KeyError::Form(form_of(SECRET))),
                },
                [] => Err(KeyError::Form(form_of(SECRET))),
            })?,
        };
        let about = std::fs::metadata(path).map_err(|error| cannot("read", path, error))?;
        let mode = about.mode() & 0o777;
        if about.is_file() && mode & !OWNER_ONLY != 0 {
            let path = path.to_owned();
            return Err(KeyError::NotSecret { path, mode });
        }
        Ok(key)
    }

    /// The key of a file in PEM. `None`: it is none.
    fn of_pem(text: &str, path: &Path) -> Option<Result<Self, KeyError>> {
        #[cfg(feature = "tls")]
        return super::certificate::seed_of_pem(text).map(|seed| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let key = seed.map(|seed| Self::from_seed(seed, name));
            key.map_err(|why| KeyError::Line {
                path: path.to_owned(),
                line: 1,
                why: why.to_string(),
            })
        });
        #[cfg(not(feature = "tls"))]
        {
            let _ = (text, path);
            None
        }
    }

    /// Writes a new file, of mode 0600, that [`read`](Self::read) reads.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let text = format!(
            "# Signs in the name of {}. Keep it secret.\n{SECRET} {ED25519} {} {}\n",
            self.public(),
            Hex(self.key.as_bytes()),
            one_line(&self.name)
        );
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(OWNER_ONLY)
            .open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| cannot("write", path, error))
    }
}

impl FromStr for Signature {
    type Err = KeyError;

    fn from_str(line: &str) -> Result<Self, KeyError> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let signature = match fields[..] {
            [SIGNATURE, ED25519, image, key, signature] => {
                let parsed = (hex::parse(image), key.parse::<PublicKey>(), hex::parse(signature));
                match parsed {
                    (Some(image), Ok(key), Some(signature)) => Some(Self {
                        image,
                        raw: signature::Signature {
                            key: *key.as_bytes(),
                            signature,
                        },
                    }),
                    _ => None,
                }
            }
            _ => None,
        };
        signature.ok_or_else(|| KeyError::Form(form_of(SIGNATURE)))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (image, key, signature) = (Hex(&self.image), Hex(&self.raw.key), Hex(&self.raw.signature));
        write!(f, "{SIGNATURE} {ED25519} {image} {key} {signature}")
    }
}

impl FromStr for Signatures {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let parse = |(number, line): (usize, &str)| {
            line.parse()
                .map_err(|error| KeyError::Form(format!("line {number}: {error}")))
        };
        lines(text).map(parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

impl Signatures {
    /// Reads a file that `cargo ifunc sign` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no signature.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let parse = |(line, text): (usize, &str)| {
            text.parse().map_err(|error: KeyError| KeyError::Line {
                path: path.to_owned(),
                line,
                why: error.to_string(),
            })
        };
        lines(&read(path)?).map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Writes a file that [`read`](Self::read) reads. A reader sees the old file or the new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let written = std::fs::write(&beside, self.to_string()).and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| cannot("write", path, error))
    }
}

/// What a line of a kind looks like.
fn form_of(kind: &str) -> String {
    let fields = match kind {
        PUBLIC => "KEY NAME",
        SECRET => "SEED NAME",
        _ => "IMAGE KEY SIGNATURE",
    };
    format!("it must be `{kind} {ED25519} {fields}`, in hexadecimal digits")
}

/// A name without line ends.
fn one_line(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that are no comment, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The only line of a file, of this kind: what `parse` makes of the fields that follow the scheme.
fn only<T>(
    text: &str,
    path: &Path,
    kind: &str,
    parse: impl FnOnce(&[&str]) -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let fail = |line, why: String| KeyError::Line {
        path: path.to_owned(),
        line,
        why,
    };
    let mut lines = lines(text);
    let Some((line, text)) = lines.next() else {
        return Err(fail(1, format!("the file is empty; {}", form_of(kind))));
    };
    if let Some((line, _)) = lines.next() {
        return Err(fail(line, "a file holds one key".into()));
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [found, ED25519, rest @ ..] = &fields[..] else {
        return Err(fail(line, form_of(kind)));
    };
    if *found != kind {
        let help = match *found {
            SECRET => "; help: the public key is in the file that ends in `.pub`",
            _ => "",
        };
        return Err(fail(line, format!("it is no `{kind}`{help}")));
    }
    parse(rest).map_err(|error| fail(line, error.to_string()))
}

pub(super) fn read(path: &Path) -> Result<String, KeyError> {
    let read = || {
        if std::fs::metadata(path)?.len() > MAX_FILE {
            return Err(std::io::Error::other(format!(
                "it has more than {MAX_FILE} bytes"
            )));
        }
        std::fs::read_to_string(path)
    };
    read().map_err(|error| cannot("read", path, error))
}

fn cannot(doing: &'static str, path: &Path, error: std::io::Error) -> KeyError {
    KeyError::File {
        doing,
        path: path.to_owned(),
        error,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ifunc-keys-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let folder = folder("pair");
        let (secret, public) = (folder.join("a.key"), folder.join("a.pub"));
        let key = SecretKey::from_seed([1; 32], "build\nserver");
        key.write_new(&secret).unwrap();
        key.public().write(&public, key.name()).unwrap();
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = SecretKey::read(&secret).unwrap();
        assert_eq!((read.public(), read.name()), (key.public(), "build server"));
        assert_eq!(
            PublicKey::read(&public).unwrap(),
            (key.public(), "build server".into())
        );
        // No key is overwritten.
        assert!(matches!(
            key.write_new(&secret),
            Err(KeyError::File { doing: "write", .. })
        ));
        // A secret key where a public one is expected, and the reverse.
        let error = PublicKey::read(&secret).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains(".pub"), "{error}");
        std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(SecretKey::read(&public).unwrap_err().to_string().contains(SECRET));
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = SecretKey::read(&secret).unwrap_err();
        assert!(
            matches!(error, KeyError::NotSecret { mode: 0o640, .. }),
            "{error}"
        );
        let error = error.to_string();
        assert!(error.contains("chmod 600") && error.contains("640"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_line_that_is_no_signature_is_named() {
        let key = SecretKey::from_seed([1; 32], "");
        let mut all = Signatures::default();
        all.add(key.sign(&[1; 32]));
        all.add(key.sign(&[2; 32]));
        let folder = folder("signatures");
        let path = folder.join("a.sig");
        all.write(&path).unwrap();
        assert_eq!(Signatures::read(&path).unwrap(), all);
        let text = format!("# two images\n\n{all}{SIGNATURE} {ED25519} 12 34 56\n");
        let error = text.parse::<Signatures>().unwrap_err().to_string();
        assert!(
            error.starts_with("line 5: ") && error.contains("IMAGE KEY SIGNATURE"),
            "{error}"
        );
        std::fs::write(&path, text).unwrap();
        let error = Signatures::read(&path).unwrap_err().to_string();
        assert!(error.contains("a.sig`, line 5: "), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed(text in "[ -~\n]{0,300}") {
            let _ = text.parse::<Signatures>();
            let _ = text.parse::<PublicKey>();
            let _ = only(&text, Path::new("x"), SECRET, |_| Ok(()));
        }
    }
}
