//! `cargo ifunc call`: one call from a shell, with its payload and its answer as JSON.

mod decode;
mod encode;
mod example;
#[cfg(test)]
mod tests;
mod types;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ifunc_abi::image::Image;
use ifunc_build::{LibraryImage, read_library};
use ifunc_rt::{ByName, Handle, LibraryError, Source, SourceOptions, library};

use crate::cli::CallArgs;
use crate::error::Failure;
use crate::peer;
use crate::shell::Shell;
use types::Codec;

/// Longest wait for a target that does not listen yet.
const CONNECT: Duration = Duration::from_secs(5);
/// The import by which an image answers in parts.
const REPLY: &str = "__ifunc_reply";

pub(crate) fn run(args: &CallArgs, shell: &mut Shell) -> Result<(), Failure> {
    if args.address.starts_with("loopback:") {
        return Err(Failure::Message(
            "a `loopback:` address is reachable from its own process only\n\
             help: let the target listen at `shm:NAME`, too"
                .into(),
        ));
    }
    let ifunc = Callee::find(&args.name)?;
    // Errors in the payload come before those of the connection.
    let payload = ifunc.payload(args)?;
    if let Some(path) = args.output.as_ref().filter(|path| path.as_os_str() != "-") {
        std::fs::write(path, []).map_err(Failure::io("write", path))?;
    }
    let options = SourceOptions::default()
        .timeout(args.timeout)
        .connect_timeout(CONNECT.min(args.timeout))
        .reconnect(Duration::ZERO);
    let source = Source::connect_with(&args.address, options).map_err(|error| peer::unreachable(&error))?;
    // SAFETY: the user names the library, which the builder of this project made, and trusts it with this process.
    let handle = unsafe { source.load_path(&ifunc.path) };
    let handle = handle.map_err(|error| failed(&error))?;
    if !ifunc.replies {
        let answer = handle
            .call(&payload)
            .and_then(ifunc_rt::Call::wait_bytes)
            .map_err(|error| ifunc.failed(&error))?;
        if !ifunc.show(args, &answer)? {
            shell.status("Done", format_args!("`{}` answers nothing", ifunc.name));
        }
        return Ok(());
    }
    stream(&ifunc, &handle, args, &payload)
}

/// Prints each part of an answer when it arrives.
fn stream(ifunc: &Callee, handle: &Handle<ByName>, args: &CallArgs, payload: &[u8]) -> Result<(), Failure> {
    for part in handle
        .call_stream(payload)
        .map_err(|error| ifunc.failed(&error))?
    {
        ifunc.show(args, &part.map_err(|error| failed(&error))?)?;
    }
    Ok(())
}

/// The ifunc that is called, and what its library says of its types.
struct Callee {
    name: String,
    path: PathBuf,
    payload: Option<String>,
    answer: Option<String>,
    /// Its image may answer in parts.
    replies: bool,
}

impl Callee {
    /// Finds a library: by the path, or by the name.
    fn find(name: &str) -> Result<Self, Failure> {
        let is_path = name.contains('/') || Path::new(name).extension().is_some_and(|ext| ext == "so");
        let path = match is_path {
            true => PathBuf::from(name),
            false => library(name).map_err(|error| failed(&error))?,
        };
        let mut images = read_library(&path)?.images;
        // Slices have one name, and the same types.
        images.dedup_by(|one, other| one.name == other.name);
        let [image]: [LibraryImage; 1] = images.try_into().map_err(|images: Vec<_>| {
            Failure::Message(format!(
                "`{}` holds images of {} ifuncs, not of one\nhelp: `call` takes a library of `cargo ifunc build`: target/ifunc/release/NAME.so",
                path.display(),
                images.len()
            ))
        })?;
        let parsed = Image::parse(&image.image).map_err(|source| Failure::Image {
            file: path.clone(),
            source,
        })?;
        let about = image.about().entry(&image.name);
        Ok(Self {
            payload: about.payload().map(Into::into),
            answer: about.answer().map(Into::into),
            replies: parsed.imports().any(|import| import.symbol == REPLY),
            name: image.name.clone(),
            path,
        })
    }

    /// The bytes that are sent.
    fn payload(&self, args: &CallArgs) -> Result<Vec<u8>, Failure> {
        if let Some(path) = &args.raw {
            return read(path);
        }
        let given = match (&args.payload, &args.file) {
            (Some(text), _) => Some(("--payload".to_owned(), text.clone().into_bytes())),
            (None, Some(path)) => Some((shown(path), read(path)?)),
            (None, None) => None,
        };
        let Some(text) = &self.payload else {
            return match given {
                None => Ok(Vec::new()),
                Some(_) => Err(Failure::Message(format!(
                    "`{}` does not state the type of its payload: it is in C\n\
                     help: `--raw FILE` passes the bytes of a file to its `{}_payload_init`",
                    self.name, self.name
                ))),
            };
        };
        let codec = self.codec("payload", text)?;
        let Some((origin, json)) = given else {
            return encode::encode(&codec, &serde_json::Value::Null).map_err(|_| {
                let example = example::example(&codec);
                let example = example.unwrap_or_else(|| "..".into()).replace('\'', "'\\''");
                Failure::Usage(format!(
                    "`{}` takes a payload of type `{text}`\nhelp: give it as JSON: in a file, by `-` from standard input, or \
                     by an option, for instance --payload '{example}'",
                    self.name
                ))
            });
        };
        let value: serde_json::Value = serde_json::from_slice(&json)
            .map_err(|error| Failure::Message(format!("{origin} is no JSON: {error}")))?;
        encode::encode(&codec, &value).map_err(|mismatch| {
            Failure::Message(format!(
                "{origin} is not a payload of `{}`: {mismatch}\nhelp: its type is `{text}`{}",
                self.name,
                example::example(&codec)
                    .map(|example| format!("\nhelp: a payload looks like {example}"))
                    .unwrap_or_default()
            ))
        })
    }

    /// An error of a call.
    fn failed(&self, error: &ifunc_rt::Error) -> Failure {
        match (error, &self.payload) {
            // Bytes by `--raw`, which an ifunc in Rust reads once before they are sent.
            (ifunc_rt::Error::PayloadInit { .. }, Some(text)) => Failure::Message(format!(
                "the bytes are no payload of `{}`; nothing was sent\nhelp: its type is `{text}`; without `--raw`, a payload is JSON",
                self.name
            )),
            _ => failed(error),
        }
    }

    /// Prints an answer; whether there was something to print.
    fn show(&self, args: &CallArgs, answer: &[u8]) -> Result<bool, Failure> {
        let mut out = std::io::stdout().lock();
        if let Some(path) = &args.output {
            match path.as_os_str() == "-" {
                true => out.write_all(answer)?,
                false => append(path, answer)?,
            }
            return Ok(true);
        }
        let json = match &self.answer {
            // In C, nothing but the author knows what the bytes are.
            None => decode::decode(&Codec::RawBytes, answer),
            Some(text) => decode::decode(&self.codec("answer", text)?, answer),
        };
        let json = json.map_err(|decode::NotOfType| {
            Failure::Message(format!(
                "the answer of `{}` is not a value of its type: {} bytes\nhelp: its type is `{}`; `--output FILE` writes the bytes to a file",
                self.name,
                answer.len(),
                self.answer.as_deref().unwrap_or("raw bytes"),
            ))
        })?;
        let Some(json) = json else { return Ok(false) };
        writeln!(out, "{json}")?;
        out.flush()?;
        Ok(true)
    }

    fn codec(&self, what: &str, text: &str) -> Result<Codec, Failure> {
        Codec::parse(text).map_err(|bad| {
            let option = if what == "payload" { "--raw" } else { "--output" };
            Failure::Message(format!(
                "the {what} of `{}` has a type that this command does not know: `{text}`, at byte {}\n\
                 help: the library may be of another version of ifunc; `{option} FILE` takes the bytes as they are",
                self.name, bad.at
            ))
        })
    }
}

/// The library of this name: in a folder that the environment names, or in that of the workspace around the working directory.
///
/// The folders in which a source searches begin beside the program, which is this command: there are libraries of the workspace in which
/// the command itself was built.
fn library(name: &str) -> Result<PathBuf, LibraryError> {
    // Asks cargo for the folder only if no other has the library.
    let of_workspace = std::iter::once_with(|| ifunc_build::target_directory().join("release"));
    library::find(
        name,
        library::environment_folders().into_iter().chain(of_workspace),
    )
}

fn shown(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => format!("`{}`", path.display()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() != "-" {
        return std::fs::read(path).map_err(Failure::io("read", path));
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(Failure::io("read", "standard input"))?;
    Ok(bytes)
}

/// Writes to the file that the command has emptied.
fn append(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .map_err(Failure::io("write", path))
}

/// An error of the source, or of the target.
fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Message(peer::text(error))
}
