//! Counts by single-stepping a child process: the processor stops after every instruction. This includes
//! other stacks, injected code, and the kernel's own page.

use std::error::Error;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use libc::{c_int, c_uint, c_void, pid_t};

use crate::work::{EACH, MARK};

/// Instruction counts of a path, minus those of an empty measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instructions {
    /// The usual count: the minimum of all runs.
    pub(crate) usual: u64,
    /// The count in a new tick of the clock, which includes work done once per tick: the median.
    pub(crate) first: u64,
}

pub(crate) fn instructions(what: &str, turns: u64) -> Result<Instructions, Box<dyn Error>> {
    let nothing = Traced::start("nothing", turns)?.count()?;
    let nothing = nothing.into_iter().min().unwrap_or(0);
    let counts = Traced::start(what, turns)?.count()?;
    let mut firsts: Vec<u64> = counts.iter().copied().step_by(EACH).collect();
    firsts.sort_unstable();
    let (usual, first) = counts
        .iter()
        .min()
        .zip(firsts.get(firsts.len() / 2))
        .ok_or("the child set no marks")?;
    Ok(Instructions {
        usual: usual.saturating_sub(nothing),
        first: first.saturating_sub(nothing),
    })
}

/// A child that runs `work` and stops at its marks.
struct Traced(Child);

/// Why the child stopped.
enum Stop {
    /// It reached a [`MARK`] or the end of an instruction.
    Signal(c_int),
    Exited(c_int),
}

impl Traced {
    fn start(what: &str, turns: u64) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["work", what, &turns.to_string()])
            .stdin(Stdio::null());
        let trace_me = || ptrace(libc::PTRACE_TRACEME, 0, 0);
        // SAFETY: the closure makes one system call between fork and exec.
        let mut traced = Self(unsafe { command.pre_exec(trace_me) }.spawn()?);
        // The child stops at exec.
        match traced.wait()? {
            Stop::Signal(libc::SIGTRAP) => {}
            _ => return Err("the traced process did not stop at its start".into()),
        }
        ptrace(
            libc::PTRACE_SETOPTIONS,
            traced.pid(),
            libc::PTRACE_O_EXITKILL as usize,
        )?;
        Ok(traced)
    }

    /// Counts instructions between the first and the second mark, the third and the fourth, and so on.
    fn count(mut self) -> Result<Vec<u64>, Box<dyn Error>> {
        let mut counts = Vec::new();
        let mut counting: Option<u64> = None;
        let mut signal = 0;
        loop {
            let request = if counting.is_some() {
                libc::PTRACE_SINGLESTEP
            } else {
                libc::PTRACE_CONT
            };
            ptrace(request, self.pid(), signal as usize)?;
            signal = 0;
            match (self.wait()?, &mut counting) {
                (Stop::Exited(0), None) => return Ok(counts),
                (Stop::Exited(code), _) => {
                    return Err(format!("the traced process ended with {code}").into());
                }
                (Stop::Signal(MARK), None) => counting = Some(0),
                (Stop::Signal(MARK), Some(count)) => {
                    counts.push(*count);
                    counting = None;
                }
                (Stop::Signal(libc::SIGTRAP), Some(count)) => *count += 1,
                (Stop::Signal(other), _) => signal = other,
            }
        }
    }

    fn wait(&mut self) -> io::Result<Stop> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is writable.
            match unsafe { libc::waitpid(self.pid(), &raw mut status, libc::__WALL) } {
                -1 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
                _ if libc::WIFSTOPPED(status) => return Ok(Stop::Signal(libc::WSTOPSIG(status))),
                _ if libc::WIFEXITED(status) => return Ok(Stop::Exited(libc::WEXITSTATUS(status))),
                _ => return Ok(Stop::Exited(-1)),
            }
        }
    }

    fn pid(&self) -> pid_t {
        self.0.id() as pid_t
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A ptrace request that takes a number and writes nothing.
fn ptrace(request: c_uint, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: these requests access no memory of this process.
    match unsafe { libc::ptrace(request, pid, null_mut::<c_void>(), data as *mut c_void) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
