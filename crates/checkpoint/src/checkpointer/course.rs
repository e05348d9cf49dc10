//! Where the saves of this launch are in the history of their run: on which line, and after which step.

use super::{Checkpointer, Inner};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::clock::rfc3339;
use crate::commit::{Attempt, IfCommitted, Supersedes};
use crate::copies::{self, near};
use crate::error::chain;
use crate::handshake::Handshake;
use crate::lines::{self, Line, Parent};
use crate::manifest::Manifest;
use crate::run;
use crate::sync::PoisonError;
use cairn_store::Store;
use std::collections::BTreeSet;

/// What a launch knows of its place in the run.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The identifier of the launch, once its ranks agree on it.
    launch: Option<String>,
    /// The step that the state comes from: loaded, or committed by this launch.
    parent: Option<Parent>,
    /// Whether that step was loaded, at any time.
    has_loaded: bool,
    /// The line of the last save, and its step.
    last: Option<(u64, u64)>,
}

/// What writer 0 says of a save's place in the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    pub(crate) launch: Option<String>,
    pub(crate) line: u64,
    pub(crate) parent: Option<Parent>,
    pub(crate) replaces: Option<String>,
}

impl Course {
    fn resumed_from(&mut self, parent: Parent) {
        // The next save looks where the run is: one before it may be committed that nobody has looked at yet.
        self.last = None;
        self.parent = Some(parent);
        self.has_loaded = true;
    }

    /// Notes that a save of this launch was committed.
    pub(super) fn committed(&mut self, step: u64, attempt: &str) {
        if let Some((line, last)) = self.last
            && step <= last
        {
            let attempt = attempt.to_string();
            self.parent = Some(Parent {
                step,
                attempt,
                line,
            });
        }
    }
}

impl Checkpointer {
    /// Says that the state now comes from `checkpoint`, which was loaded: what is saved next follows it. If the run has newer steps, they are
    /// abandoned from the next save on.
    ///
    /// [`Checkpointer::load_latest`] does this by itself.
    pub fn resumed_from(&self, checkpoint: &Checkpoint) {
        let manifest = checkpoint.manifest();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.course.resumed_from(Parent {
            step: manifest.step,
            attempt: manifest.attempt.clone(),
            line: manifest.line,
        });
    }

    /// The identifier of this launch. The first time, ranks that only share a name agree on it.
    pub(super) fn launch(&self, inner: &mut Inner) -> Result<String, Error> {
        if let Some(launch) = &inner.course.launch {
            return Ok(launch.clone());
        }
        let launch = match self.world.known_launch() {
            Some(launch) => launch.to_string(),
            None => {
                let handshake = Handshake {
                    store: self.board().as_ref(),
                    world: &self.world,
                    clock: &self.options.clock,
                    timeout: self.options.commit_timeout,
                };
                handshake.agree()?
            }
        };
        inner.course.launch = Some(launch.clone());
        Ok(launch)
    }

    /// What an attempt may take the place of, before anything is known of the step.
    pub(super) fn may_supersede(inner: &Inner) -> Supersedes {
        match inner.course.has_loaded {
            // Where a launch does not say where it comes from, nothing is replaced on a guess.
            false => Supersedes::Nothing,
            true => Supersedes::Undecided,
        }
    }

    /// Decides on which line a save is, and what it takes the place of. Only writer 0 does.
    pub(super) fn chart(&self, inner: &mut Inner, attempt: &mut Attempt) -> Result<Origin, Error> {
        let launch = attempt.launch.clone();
        if self.world.rank() != 0 {
            return Ok(Origin {
                launch,
                ..Origin::default()
            });
        }
        let line = match inner.course.last {
            Some((line, last)) if attempt.step >= last => line,
            _ => self.choose_line(&inner.course, attempt)?,
        };
        inner.course.last = Some((line, attempt.step));
        let replaces = self.superseded(attempt, line)?;
        if let Some(old) = &replaces {
            attempt.supersedes = Supersedes::Attempt(old.clone());
        }
        Ok(Origin {
            launch,
            line,
            parent: inner.course.parent.clone(),
            replaces,
        })
    }

    /// The line of the first save after a load, or of one that goes back: that of the newest step if it follows it, or else a new one.
    fn choose_line(&self, course: &Course, attempt: &Attempt) -> Result<u64, Error> {
        let store = self.known_store();
        let newest = lines::newest(store.as_ref())?;
        let Some(tip) = run::newest(store.as_ref(), &BTreeSet::new())? else {
            return Ok(newest);
        };
        let is_back = course.last.is_some();
        let (line, name) = match copies::manifest(store.as_ref(), tip) {
            Ok((manifest, _)) => (manifest.line, Some(manifest)),
            // It counts as the newest step until somebody commits another.
            Err(error) if error.is_damage() => (newest, None),
            Err(Error::Incomplete { .. } | Error::Deleted { .. }) => (newest, None),
            Err(error) => return Err(error),
        };
        let follows = !is_back
            && match (&course.parent, &name) {
                (None, _) => attempt.step >= tip,
                (Some(parent), Some(tip)) => tip.is_of(&parent.attempt) && attempt.step >= tip.step,
                (Some(_), None) => false,
            };
        if follows {
            return Ok(line);
        }
        let begun = Line {
            // If the objects of lines were lost, the steps still have theirs.
            number: line + 1,
            launch: attempt.launch.clone().unwrap_or_default(),
            parent: course.parent.clone(),
            created: rfc3339(self.options.clock.now()),
        };
        let line = lines::begin(self.board().as_ref(), begun)?;
        tracing::info!(
            line,
            step = attempt.step,
            newest = tip,
            "the run goes back: steps of the line before are abandoned"
        );
        Ok(line)
    }

    /// The committed attempt that a save on `line` takes the place of: one of an older line that this launch left.
    fn superseded(&self, attempt: &Attempt, line: u64) -> Result<Option<String>, Error> {
        if attempt.supersedes == Supersedes::Nothing || line == 0 {
            return Ok(None);
        }
        let older = |manifest: Manifest| (manifest.line < line).then_some(manifest.attempt);
        match copies::manifest(self.known_store().as_ref(), attempt.step) {
            Ok((manifest, _)) => Ok(older(manifest)),
            Err(Error::Incomplete { .. } | Error::Deleted { .. }) => Ok(None),
            // A damaged one says nothing, and makes way for whoever replaces it on purpose.
            Err(error) if error.is_damage() && attempt.if_committed == IfCommitted::Replace => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The store as far as it can be asked: training need not wait for a durable tier that is away.
    fn known_store(&self) -> std::sync::Arc<dyn Store> {
        let Some(tiers) = self.store.tiers() else {
            return self.store.clone();
        };
        match tiers.durable().list_files(lines::FOLDER) {
            Ok(_) => self.store.clone(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the durable tier cannot be asked for the lines of the run");
                near(&self.store).clone()
            }
        }
    }
}
