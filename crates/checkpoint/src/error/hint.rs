//! What to do about each error.

use super::{Error, list};

/// For a step that refers to files that are gone, or whose step is damaged.
const GONE: &str = "nothing was committed; save again, in full. `cairn verify` says whether the step of these files is damaged, and `cairn repair` mends it; delete steps with `cairn prune`, which keeps what others refer to";

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Store { source, .. } | Error::Address(source) => source.hint(),
            Error::Placement { source, .. } | Error::Rule { source, .. } => source.hint(),
            Error::Format(source) => source.hint(),
            Error::Capture { source } => source.hint(),
            Error::PreviousSave { source, .. } => source.hint(),
            Error::Keys(problems) => problems.hint(),
            Error::NotUploaded { .. } => Some(
                "it is tried again by itself, by every later launch too, and the fast tier keeps it until then; look at the durable store, and save again".into(),
            ),
            Error::NoSuchStep { .. } | Error::NoSuchAverage { .. } => self.choices(),
            Error::KeepRule { expected, .. } => Some(format!("expected {expected}")),
            Error::BasesGone { .. } => Some(GONE.into()),
            _ => self.advice().map(Into::into),
        }
    }

    /// What there is instead of what was asked for.
    fn choices(&self) -> Option<String> {
        Some(match self {
            Error::NoSuchStep { available, .. } if available.is_empty() => {
                "the run has no committed steps".to_string()
            }
            Error::NoSuchStep { available, .. } => format!(
                "committed steps: {}",
                list(&available[available.len().saturating_sub(10)..])
            ),
            Error::NoSuchAverage { available, .. } if available.is_empty() => {
                "the checkpoint has no averages; `cairn ema` makes them from stored steps, and training can start one anew".to_string()
            }
            Error::NoSuchAverage { available, .. } => format!(
                "its averages are {}; training can start another one anew",
                list(&available.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>())
            ),
            _ => return None,
        })
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Error::Torn { .. } => {
                "nothing was committed and older steps are untouched; fence before the state changes: optimizers that are saved with the model do it themselves, anything else with `fence`"
            }
            Error::Skipped { .. } => "save less often, or let saves wait for each other",
            Error::Launch { .. } => {
                "mend these variables, or set `CAIRN_RANK` and `CAIRN_WORLD_SIZE`, which come before all others"
            }
            Error::NoSession { .. } => {
                "set `CAIRN_SESSION` to the same name on all ranks, and to a new one at every start"
            }
            Error::Meeting(meeting) => meeting.advice(),
            Error::Misplaced(misplaced) => misplaced.advice(),
            Error::RunInUse { .. } => {
                "two trainers on one run would spoil each other's steps: end that one first, or use another folder. `--take-over` takes the run from it: it ends at its next step, and what it did since its last checkpoint is lost"
            }
            Error::StepTaken { .. } => {
                "save another step, or pass `replace` to put this save in its place"
            }
            Error::SessionReused { .. } => {
                "nothing was committed; give every launch its own session name, such as a job id with its restart count"
            }
            Error::WritersMissing { .. } => {
                "nothing was committed and older steps are untouched; look at those ranks' logs, and save again"
            }
            Error::WriterFailed { .. } => {
                "nothing was committed and older steps are untouched; mend that writer and save again"
            }
            Error::Disagreement { .. } => {
                "every rank must describe a tensor in the same way, and every launch needs its own session name"
            }
            Error::TargetTaken { .. } => "choose another folder, or pass `replace`",
            Error::Unfinished { .. } => {
                "go on with it with `--resume`, or start over with `--replace`"
            }
            Error::CannotResume { .. } => {
                "give the same source and options, or start over with `--replace`"
            }
            _ => return self.advice_to_readers(),
        })
    }

    fn advice_to_readers(&self) -> Option<&'static str> {
        Some(match self {
            Error::NotACheckpoint { .. } => {
                "expected a run (with folders `step-…`), a step, a folder of Hugging Face, torch distributed, Megatron, DeepSpeed, Orbax or Paddle, or a file such as `.safetensors`, `.pt`, `.bin` or `.pdparams`"
            }
            Error::Damaged { .. } => {
                "use another step: `cairn ls` shows them, and loading `latest` passes over damaged ones"
            }
            Error::Deleted { .. } => {
                "read a newer step; a tag keeps a step for good, and a grace period its files for those who read it"
            }
            Error::Untrusted { .. } => {
                "`cairn sign` signs a step that you trust; one that was changed after it was signed is not what its owner made"
            }
            Error::Key { .. } => {
                "`cairn keygen` makes a pair of keys: the secret one signs, the public one checks"
            }
            Error::NotACopy { .. } => {
                "a copy has the same `COMMIT`, byte for byte; `cairn convert` and `cairn reshard` write other files"
            }
            Error::TagName { .. } => {
                "a tag has up to 64 letters, digits, `.`, `-` and `_`, and does not begin with `.`"
            }
            Error::Incomplete { .. } => {
                "`cairn verify --finish` completes it if every part is there"
            }
            Error::PeerLost { .. } => {
                "look at that rank's log; all peers must run on this machine and share the folder they meet in"
            }
            Error::PeersDisagree { .. } => {
                "peers load the same tensors of the same step and give every load a new token; without peers each loads alone"
            }
            Error::AverageChanged { .. } => {
                "define it as it is stored, give the new one a label of its own, or start it anew"
            }
            Error::Version { .. } | Error::Needs { .. } => "install a newer Cairn to read it",
            _ => return None,
        })
    }
}
