//! Rank and job of this process, from the launcher's environment.

use super::RendezvousError;

/// Rank of this process, and its job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launched {
    /// Rank of this process, from 0.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// The job: the same text in all its processes, and another one for each launch.
    pub job: String,
}

/// Environment variables that a launcher sets.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    /// Variables that differ between launches, separated by spaces; those that are set form the job's name.
    job: &'static str,
}

/// In order of precedence: `mpirun` inside a Slurm job starts its processes itself, and all of them inherit the Slurm
/// variables of the one process that Slurm started.
const LAUNCHERS: [Launcher; 4] = [
    // Set by hand.
    Launcher {
        rank: "IFUNC_RANK",
        size: "IFUNC_SIZE",
        job: "",
    },
    // Open MPI. Version 4 makes a random key for each launch; version 5 names it after host, process and number.
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        job: "OMPI_MCA_orte_precondition_transports PMIX_NAMESPACE",
    },
    // MPICH and Intel MPI: the launcher's own address (host and port), and its number for the job.
    Launcher {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        job: "PMI_PORT PMI_JOBID SLURM_JOB_ID SLURM_STEP_ID SLURM_RESTART_COUNT",
    },
    // `srun`: a job has steps, and may be put back into the queue under its old number.
    Launcher {
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        job: "SLURM_CLUSTER_NAME SLURM_JOB_ID SLURM_STEP_ID SLURM_RESTART_COUNT",
    },
];

impl Launched {
    /// Reads `IFUNC_RANK`, `IFUNC_SIZE` and `IFUNC_JOB` from the environment, or the variables of Open MPI, MPICH or
    /// Slurm. `IFUNC_JOB` takes precedence over a launcher's own name of the job, for launchers that set none.
    ///
    /// # Errors
    /// No supported launcher started this process, or a variable is no number.
    pub fn from_env() -> Result<Self, RendezvousError> {
        Self::from(|name| std::env::var(name).ok())
    }

    pub(super) fn from(env: impl Fn(&str) -> Option<String>) -> Result<Self, RendezvousError> {
        let launcher = LAUNCHERS.iter().find(|launcher| env(launcher.rank).is_some());
        let launcher = launcher.ok_or(RendezvousError::NotLaunched {
            missing: "IFUNC_RANK",
        })?;
        let number = |name: &'static str| {
            let value = env(name).ok_or(RendezvousError::NotLaunched { missing: name })?;
            value
                .trim()
                .parse()
                .map_err(|_| RendezvousError::Number { name, value })
        };
        let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
        if rank >= size {
            return Err(RendezvousError::Rank { rank, size });
        }
        let parts: Vec<String> = launcher.job.split(' ').filter_map(&env).collect();
        let own = Some(parts.join(" ")).filter(|job| !job.is_empty());
        let job = env("IFUNC_JOB").filter(|job| !job.is_empty()).or(own);
        let job = job.ok_or(RendezvousError::NotLaunched { missing: "IFUNC_JOB" })?;
        Ok(Self { rank, size, job })
    }
}
