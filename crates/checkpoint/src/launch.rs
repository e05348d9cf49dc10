//! How this process was launched: its rank among how many, read from the variables that launchers set.

#[cfg(test)]
mod tests;

use crate::Error;
use crate::world::World;

/// Looks up an environment variable.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variable that names a launch whichever launcher made it.
const SESSION: &str = "CAIRN_SESSION";

/// One rank, as its launcher describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// This rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// A name that all ranks of this launch have and no other launch does, where the launcher gives one.
    pub session: Option<String>,
    /// Which of the ranks on this machine this is, if known.
    pub local_rank: Option<usize>,
    /// How many ranks there are on this machine, if known.
    pub local_size: Option<usize>,
    /// Who set the variables: `cairn`, `torchrun`, `slurm`, `openmpi`, `pmi`, `paddle`, or `single` if nobody did.
    pub launcher: &'static str,
}

/// The variables of one launcher.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: fn(Lookup) -> Result<Option<usize>, Error>,
    session: fn(Lookup) -> Option<String>,
}

/// From the most to the least explicit: the first whose variables are set is believed.
const LAUNCHERS: [Launcher; 6] = [
    Launcher {
        name: "cairn",
        rank: "CAIRN_RANK",
        size: "CAIRN_WORLD_SIZE",
        local_rank: "CAIRN_LOCAL_RANK",
        local_size: |get| number(get, "CAIRN_LOCAL_WORLD_SIZE"),
        // `SESSION` is asked for by every launcher.
        session: |_| None,
    },
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: |get| number(get, "LOCAL_WORLD_SIZE"),
        session: torchrun_session,
    },
    Launcher {
        name: "slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_size: slurm_local_size,
        session: |get| {
            let job = [get("SLURM_JOB_ID")?, get("SLURM_STEP_ID")?].join(".");
            Some(format!("{job} restart {}", slurm_restarts(get)))
        },
    },
    Launcher {
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: |get| number(get, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        session: |get| get("PMIX_NAMESPACE").or_else(|| get("OMPI_MCA_ess_base_jobid")),
    },
    Launcher {
        name: "pmi",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: |get| number(get, "MPI_LOCALNRANKS"),
        session: |_| None,
    },
    Launcher {
        name: "paddle",
        rank: "PADDLE_TRAINER_ID",
        size: "PADDLE_TRAINERS_NUM",
        local_rank: "PADDLE_RANK_IN_NODE",
        local_size: |get| number(get, "PADDLE_LOCAL_SIZE"),
        session: |_| None,
    },
];

impl Launch {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// If variables are missing, are no numbers, or contradict each other.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }

    /// Reads variables by `lookup`; an empty one counts as not set.
    ///
    /// `CAIRN_RANK` with `CAIRN_WORLD_SIZE` come first, then what torchrun, Slurm, Open MPI, other MPIs and Paddle set. Without any
    /// of them this is the only rank. `CAIRN_SESSION` names the launch, whoever made it.
    ///
    /// # Errors
    /// As [`Launch::from_env`].
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let get = &|name: &str| lookup(name).filter(|value| !value.is_empty());
        for launcher in &LAUNCHERS {
            if let Some(launch) = launcher.read(get)? {
                return Ok(launch);
            }
        }
        Ok(Self {
            rank: 0,
            size: 1,
            session: get(SESSION),
            local_rank: Some(0),
            local_size: Some(1),
            launcher: "single",
        })
    }

    /// The world of this launch. A launch of one rank without a name gets a new one.
    ///
    /// # Errors
    /// [`Error::NoSession`] if several ranks have no name they could share.
    pub fn world(&self) -> Result<World, Error> {
        match (&self.session, self.size) {
            (None, 1) => Ok(World::single()),
            (None, size) => Err(Error::NoSession {
                launcher: self.launcher,
                size,
            }),
            (Some(session), size) => {
                World::new(self.rank, size, session).ok_or_else(|| Error::Launch {
                    variables: vec!["rank", "size"],
                    reason: format!("say rank {} of {size} ranks", self.rank),
                })
            }
        }
    }
}

impl Launcher {
    /// What this launcher says, or `None` if it did not launch this process.
    fn read(&self, get: Lookup) -> Result<Option<Launch>, Error> {
        let (rank, size) = match (number(get, self.rank)?, number(get, self.size)?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) => return Err(half_set(self.rank, self.size)),
            (None, Some(_)) => return Err(half_set(self.size, self.rank)),
        };
        if rank >= size {
            return Err(Error::Launch {
                variables: vec![self.rank, self.size],
                reason: format!("say rank {rank} of {size} ranks"),
            });
        }
        let local_rank = number(get, self.local_rank)?;
        let local_size = (self.local_size)(get)?;
        let fits = |local_size| local_rank.is_none_or(|rank| rank < local_size);
        if let Some(local_size) = local_size.filter(|len| *len > size || !fits(*len)) {
            let local_rank = local_rank.map_or("?".to_string(), |rank| rank.to_string());
            return Err(Error::Launch {
                variables: vec![self.local_rank, self.size],
                reason: format!(
                    "say local rank {local_rank} of the {local_size} on this machine, of {size} in all"
                ),
            });
        }
        let named = |session| format!("{} {session}", self.name);
        Ok(Some(Launch {
            rank,
            size,
            session: get(SESSION).or_else(|| (self.session)(get).map(named)),
            local_rank,
            local_size,
            launcher: self.name,
        }))
    }
}

/// The run id is the same for every restart of the workers, so the restarts are counted, by torchrun and by Slurm around it.
fn torchrun_session(get: Lookup) -> Option<String> {
    let run = get("TORCHELASTIC_RUN_ID").filter(|run| run != "none")?;
    let restarts = get("TORCHELASTIC_RESTART_COUNT").unwrap_or("0".into());
    Some(format!("{run} restart {}.{restarts}", slurm_restarts(get)))
}

fn slurm_restarts(get: Lookup) -> String {
    get("SLURM_RESTART_COUNT").unwrap_or("0".into())
}

/// The tasks on this machine, from a list by machine such as `8(x2),4`.
fn slurm_local_size(get: Lookup) -> Result<Option<usize>, Error> {
    const LISTS: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
    let found = LISTS.into_iter().find_map(|name| Some((name, get(name)?)));
    let (Some((name, list)), Some(mut machine)) = (found, number(get, "SLURM_NODEID")?) else {
        return Ok(None);
    };
    for entry in list.split(',') {
        let (tasks, machines) = match entry.strip_suffix(')').and_then(|e| e.split_once("(x")) {
            Some((tasks, machines)) => (tasks.parse(), machines.parse()),
            None => (entry.parse(), Ok(1)),
        };
        let (Ok(tasks), Ok(machines)) = (tasks, machines) else {
            return Err(no_number(name, &list));
        };
        if machine < machines {
            return Ok(Some(tasks));
        }
        machine -= machines;
    }
    Ok(None)
}

fn number(get: Lookup, name: &'static str) -> Result<Option<usize>, Error> {
    let parse = |value: String| value.trim().parse().map_err(|_| no_number(name, &value));
    get(name).map(parse).transpose()
}

fn no_number(name: &'static str, value: &str) -> Error {
    Error::Launch {
        variables: vec![name],
        reason: format!("cannot be read: `{value}`"),
    }
}

fn half_set(set: &'static str, missing: &'static str) -> Error {
    Error::Launch {
        variables: vec![set, missing],
        reason: format!("belong together, but `{missing}` is not set"),
    }
}
