//! A share of a processor's time: a control group with a quota, for the programs of one host.
//!
//! Hosts on one machine take each other's time: a host that has nothing to do leaves its part to the others. With equal shares each
//! has its own, as machines of equal speed have.

use std::fs;
use std::path::{Path, PathBuf};

/// The quota is of so much time, in microseconds.
const PERIOD: u32 = 10_000;

/// A control group, which is removed with this value. Its programs have to have ended.
pub(crate) struct Share {
    folder: PathBuf,
}

impl Share {
    /// A group whose programs together run for `percent` of a processor's time.
    pub(crate) fn new(name: &str, percent: u32) -> Result<Self, String> {
        let quota = PERIOD * percent / 100;
        // The second version of control groups has one tree for all controllers.
        let (root, settings) = match fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
            Ok(_) => {
                write(Path::new("/sys/fs/cgroup/cgroup.subtree_control"), "+cpu")?;
                ("/sys/fs/cgroup", vec![("cpu.max", format!("{quota} {PERIOD}"))])
            }
            Err(_) => (
                "/sys/fs/cgroup/cpu",
                vec![
                    ("cpu.cfs_period_us", PERIOD.to_string()),
                    ("cpu.cfs_quota_us", quota.to_string()),
                ],
            ),
        };
        let folder = Path::new(root).join(name);
        fs::create_dir(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
        let share = Self { folder };
        for (file, value) in settings {
            write(&share.folder.join(file), &value)?;
        }
        Ok(share)
    }

    /// A process that is written here runs in the group.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("cannot remove `{}`: {error}", self.folder.display());
        }
    }
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    fs::write(file, value).map_err(|e| {
        format!(
            "cannot write `{value}` to `{}`: {e}; help: shares need root and the controller `cpu`",
            file.display()
        )
    })
}
