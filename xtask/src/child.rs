//! Children whose output goes to a file, and whose processor time is counted one by one.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::usage::of_zombie;

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Starts a command that writes both of its outputs to `log`.
pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Child, String> {
    let file = File::create(log).map_err(|e| format!("cannot create `{}`: {e}", log.display()))?;
    let both = file.try_clone().map_err(|e| e.to_string())?;
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(both)
        .spawn()
        .map_err(|e| format!("`{}` does not start: {e}", command.get_program().display()))
}

/// Waits for a child's end, and kills it at the limit. Its processor time is read while it is a zombie: afterwards the kernel
/// knows only the sum of all children.
pub(crate) fn wait(mut child: Child, limit: Option<Duration>) -> (Duration, Result<(), String>) {
    let started = Instant::now();
    let mut result = Ok(());
    let cpu = loop {
        if let Some(cpu) = of_zombie(child.id()) {
            break cpu;
        }
        if let Some(limit) = limit
            && result.is_ok()
            && started.elapsed() > limit
        {
            result = Err(format!("it was killed after {} s", limit.as_secs()));
            let _ = child.kill();
        }
        thread::sleep(POLL);
    };
    let status = child.wait();
    result = result.and_then(|()| match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    });
    (cpu, result)
}
