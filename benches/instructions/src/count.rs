//! Who counts: the processor, which stops behind every instruction of a child of this process. It stops wherever the child
//! goes: on another stack, in code that arrived, in the kernel's own page.

use std::error::Error;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use libc::{c_int, c_uint, c_void, pid_t};

use crate::work::{EACH, MARK};

/// What something took, less what doing nothing does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instructions {
    /// As it is mostly: the fewest of all times.
    pub(crate) usual: u64,
    /// Where a tick of the clock has passed since the last time, and what is done once in a tick is done: the middle one.
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
        .ok_or("nothing was counted")?;
    Ok(Instructions {
        usual: usual.saturating_sub(nothing),
        first: first.saturating_sub(nothing),
    })
}

/// A child that does `work`, and stops where it says so.
struct Traced(Child);

/// Why it stopped.
enum Stop {
    /// It has come to a [`MARK`], or to an instruction's end.
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
        // SAFETY: between fork and exec it makes one system call.
        let mut traced = Self(unsafe { command.pre_exec(trace_me) }.spawn()?);
        // It stops when it becomes the program.
        match traced.wait()? {
            Stop::Signal(libc::SIGTRAP) => {}
            _ => return Err("the process to be counted did not stop at its beginning".into()),
        }
        ptrace(
            libc::PTRACE_SETOPTIONS,
            traced.pid(),
            libc::PTRACE_O_EXITKILL as usize,
        )?;
        Ok(traced)
    }

    /// Instructions between the first mark and the second, the third and the fourth, and so on.
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
                    return Err(format!("the process that was counted ended with {code}").into());
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
            // SAFETY: writes an integer.
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

/// The requests that take a number and write nothing.
fn ptrace(request: c_uint, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here has to do with memory of this process.
    match unsafe { libc::ptrace(request, pid, null_mut::<c_void>(), data as *mut c_void) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
