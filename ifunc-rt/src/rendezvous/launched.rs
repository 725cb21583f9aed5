//! What a launcher told this process of itself.

use super::RendezvousError;

/// Which process of which job this is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launched {
    /// This process, from 0.
    pub rank: u32,
    /// How many processes there are.
    pub size: u32,
    /// The job: the same text in all its processes, another one each time it is launched.
    pub job: String,
}

/// A launcher, by the variables that it sets.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    /// What is different for each launch, the parts that are set.
    job: &'static [&'static str],
}

/// In the order in which they are asked: `mpirun` inside a job of Slurm's starts its processes itself, and what Slurm
/// said of the one process that it started is inherited by all.
const LAUNCHERS: [Launcher; 4] = [
    // Said by hand.
    Launcher {
        rank: "IFUNC_RANK",
        size: "IFUNC_SIZE",
        job: &[],
    },
    // Open MPI. Version 4 makes a random key for each launch; version 5 names it after host, process and number.
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        job: &["OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE"],
    },
    // MPICH and Intel MPI: the launcher's own address (host and port), and its number for the job.
    Launcher {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        job: &[
            "PMI_PORT",
            "PMI_JOBID",
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "SLURM_RESTART_COUNT",
        ],
    },
    // `srun`: a job has steps, and may be put back into the queue under its old number.
    Launcher {
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        job: &[
            "SLURM_CLUSTER_NAME",
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "SLURM_RESTART_COUNT",
        ],
    },
];

impl Launched {
    /// What the environment says: `IFUNC_RANK`, `IFUNC_SIZE` and `IFUNC_JOB`, or what Open MPI, MPICH or Slurm set. `IFUNC_JOB`
    /// goes before a launcher's own name of the job, for launchers that have none.
    ///
    /// # Errors
    /// No launcher that is known started this process; a number that is none.
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
        let parts = launcher
            .job
            .iter()
            .filter_map(|name| env(name))
            .collect::<Vec<_>>();
        let own = Some(parts.join(" ")).filter(|job| !job.is_empty());
        let job = env("IFUNC_JOB").filter(|job| !job.is_empty()).or(own);
        let job = job.ok_or(RendezvousError::NotLaunched { missing: "IFUNC_JOB" })?;
        Ok(Self { rank, size, job })
    }
}
