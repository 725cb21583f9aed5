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
    let counts = |what| -> Result<Vec<u64>, Box<dyn Error>> {
        Traced::start(what, turns)?.runs(|_, instructions: &mut u64| {
            *instructions += 1;
            Ok(())
        })
    };
    let nothing = counts("nothing")?.into_iter().min().unwrap_or(0);
    let counts = counts(what)?;
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

/// The addresses of the instructions that the shortest run of a path executes, in order, as `addr2line` takes them.
/// Those outside of this program (the kernel's page, shared libraries, injected code) are as they were in memory.
pub(crate) fn addresses(what: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    let traced = Traced::start(what, 1)?;
    let name = std::env::current_exe()?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", traced.pid()))?;
    let of_program = maps
        .lines()
        .filter(|line| line.ends_with(&*name.to_string_lossy()));
    let mut range = None;
    for bounds in of_program.filter_map(|line| line.split_once(' ')?.0.split_once('-')) {
        let (start, end) = (
            u64::from_str_radix(bounds.0, 16)?,
            u64::from_str_radix(bounds.1, 16)?,
        );
        range = Some(range.map_or(start, |range: std::ops::Range<u64>| range.start)..end);
    }
    let program = range.ok_or("the program is not in its own memory map")?;
    let runs = traced.runs(|traced, addresses: &mut Vec<u64>| {
        addresses.push(traced.program_counter()?);
        Ok(())
    })?;
    let shortest = runs.into_iter().min_by_key(Vec::len);
    let shortest = shortest.ok_or("the child set no marks")?;
    let loaded_at = |at| if program.contains(at) { program.start } else { 0 };
    Ok(shortest.iter().map(|at| at - loaded_at(at)).collect())
}

/// Lets the C library copy memory by the functions that every processor of this architecture has. Those that it would choose for this one
/// take fewer instructions, or more, than those of another one.
const SAME_ON_EVERY_PROCESSOR: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-SSSE3",
);

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
        let (tunables, same) = SAME_ON_EVERY_PROCESSOR;
        command
            .args(["work", what, &turns.to_string()])
            .env(tunables, same)
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

    /// What `step` collects after each instruction between the first and the second mark, the third and the fourth, and so on.
    fn runs<T: Default>(
        mut self,
        step: impl Fn(&Self, &mut T) -> io::Result<()>,
    ) -> Result<Vec<T>, Box<dyn Error>> {
        let mut runs = Vec::new();
        let mut counting: Option<T> = None;
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
                (Stop::Exited(0), None) => return Ok(runs),
                (Stop::Exited(code), _) => {
                    return Err(format!("the traced process ended with {code}").into());
                }
                (Stop::Signal(MARK), None) => counting = Some(T::default()),
                (Stop::Signal(MARK), Some(run)) => {
                    runs.push(std::mem::take(run));
                    counting = None;
                }
                (Stop::Signal(libc::SIGTRAP), Some(run)) => step(&self, run)?,
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

    fn program_counter(&self) -> io::Result<u64> {
        // SAFETY: all bit patterns are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let into = (&raw mut registers).cast::<c_void>();
        // SAFETY: `registers` is what this request writes.
        match unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid(), null_mut::<c_void>(), into) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(registers.rip),
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
