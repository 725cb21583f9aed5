//! The target in a process of its own, and the connection to it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ifunc_rt::{ByName, Error, Handle, Source, SourceOptions};

use crate::host::Library;
use crate::outcome::Outcome;
use crate::{Failure, Places};

/// Timeout of a case, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A target, restarted after a case that crashed it.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The program of the target.
    program: PathBuf,
    library: PathBuf,
    link: Option<Link>,
    /// Number of targets started; each has its own address.
    started: u32,
    /// The library of the ifunc that reads the world.
    world: Option<PathBuf>,
}

#[derive(Debug)]
struct Link {
    child: Child,
    source: Source,
    world: Option<Handle<ByName>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A case that was sent to the current target.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Number of the target.
    number: u32,
    path: PathBuf,
    loaded: Handle<ByName>,
}

impl Remote {
    /// Starts the target.
    pub(crate) fn start(places: &Places, host: &Library) -> Result<Self, Failure> {
        let mut remote = Self {
            program: match &places.other {
                None => std::env::current_exe()?,
                Some(other) => other.program.clone(),
            },
            library: host.of_target.clone(),
            link: None,
            started: 0,
            world: None,
        };
        remote.link()?;
        Ok(remote)
    }

    /// Reads the world with the ifunc of this library from now on.
    pub(crate) fn read_world_with(&mut self, library: &Path) -> Result<(), Failure> {
        // A copy, because the next build overwrites the library.
        let copy = self.library.with_file_name("take_world.so");
        std::fs::copy(library, &copy)?;
        self.world = Some(copy);
        if let Some(link) = &mut self.link {
            link.world = None;
        }
        Ok(())
    }

    /// Creates a handle for a library's ifunc.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Sent, Failure> {
        let link = self.link()?;
        // SAFETY: this driver built the library from the checkout.
        let loaded = unsafe { link.source.load_path(path) }?;
        Ok(Sent {
            number: self.started,
            path: path.into(),
            loaded,
        })
    }

    /// Runs a case on the target, and reads the state that it left.
    pub(crate) fn run(&mut self, sent: &mut Sent, input: &[u8]) -> Outcome {
        let result = self.try_run(sent, input);
        if matches!(result, Ok(Outcome::Lost(_)) | Err(_)) {
            // After any error, the next case gets a new target.
            self.link = None;
        }
        result.unwrap_or_else(|error| Outcome::Lost(error.to_string()))
    }

    fn try_run(&mut self, sent: &mut Sent, input: &[u8]) -> Result<Outcome, Failure> {
        self.link()?;
        if sent.number != self.started {
            *sent = self.load(&sent.path.clone())?;
        }
        let answer = sent.loaded.call(input)?.wait();
        let (message, file, line) = match answer {
            Ok(answer) => {
                let left = self.left()?;
                return Ok(Outcome::Ran { answer, left });
            }
            Err(Error::Panic {
                message, file, line, ..
            }) => (message, file, line),
            Err(error) => return Ok(Outcome::Lost(error.to_string())),
        };
        Ok(Outcome::Panicked {
            message,
            file,
            line,
            left: self.left()?,
        })
    }

    /// The state that the last case left in the world.
    fn left(&mut self) -> Result<Vec<u8>, Failure> {
        let path = self.world.clone().ok_or("no ifunc reads the world yet")?;
        let link = self.link()?;
        if link.world.is_none() {
            // SAFETY: as in `load`.
            link.world = Some(unsafe { link.source.load_path(path) }?);
        }
        let world = link.world.as_ref().ok_or("no ifunc reads the world yet")?;
        Ok(world.call(&[])?.wait()?)
    }

    fn link(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            self.started += 1;
            let address = format!("shm:corpus-{}-{}", std::process::id(), self.started);
            self.link = Some(Link::start(&self.program, &address, &self.library)?);
        }
        Ok(self.link.as_mut().ok_or("no target")?)
    }
}

impl Link {
    fn start(program: &Path, address: &str, library: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .args(["target", address])
            .arg(library)
            // The pipe closes when this process ends in any way; the target then ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let ready = child
            .stdout
            .take()
            .map(|out| BufReader::new(out).read_line(&mut line));
        if !matches!(ready, Some(Ok(_))) || line.trim_end() != format!("ifunc: ready {address}") {
            let _ = child.kill();
            let status = child.wait()?;
            return Err(format!(
                "the target is not ready: it printed `{}`, {status}",
                line.trim_end()
            )
            .into());
        }
        let options = SourceOptions::default()
            .timeout(TIMEOUT)
            .reconnect(Duration::ZERO);
        let source = match Source::connect_with(address, options) {
            Ok(source) => source,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        Ok(Self {
            child,
            source,
            world: None,
        })
    }
}
