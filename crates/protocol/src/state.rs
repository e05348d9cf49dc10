//! What lies under the keys of a step, where every machine is, and what must hold.

use crate::actors::{Pruner, Replacer, Tagger, Uploader, Writer};
use crate::rules::{Bound, Rules};

/// An attempt at the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Attempt {
    /// What the two writers save, if the step is free; retention may remove it.
    Saved,
    /// What is uploaded; younger than what the writers save. Retention may remove it.
    Uploaded,
    /// What replaces the step, whatever is there; the youngest. Retention keeps it.
    Replacement,
}

pub(crate) const ATTEMPTS: [Attempt; 3] = [Attempt::Saved, Attempt::Uploaded, Attempt::Replacement];

/// A set of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Attempts(u8);

impl Attempts {
    pub(crate) fn insert(&mut self, attempt: Attempt) {
        self.0 |= 1 << attempt as u8;
    }

    pub(crate) fn contains(self, attempt: Attempt) -> bool {
        self.0 & (1 << attempt as u8) != 0
    }
}

/// The objects of an attempt: two data files and two parts, one of each where one writer did it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Files {
    pub(crate) data: [bool; 2],
    pub(crate) parts: [bool; 2],
}

impl Files {
    pub(crate) fn are_whole(self) -> bool {
        self.data == [true; 2] && self.parts == [true; 2]
    }

    fn are_gone(self) -> bool {
        self == Self::default()
    }
}

/// Who holds the lock of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    Writer(usize),
    Uploader,
    Pruner(usize),
}

/// The lock of the step, under which its manifest is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lock {
    pub(crate) who: Who,
    /// What it and those before it that died wanted to remove.
    pub(crate) wanted: Attempts,
}

/// Everything at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) commit: Option<Attempt>,
    pub(crate) hidden: Option<Attempt>,
    pub(crate) deleted: Option<Attempt>,
    pub(crate) lock: Option<Lock>,
    /// Whether the step has a tag.
    pub(crate) tag: bool,
    pub(crate) files: [Files; 3],
    /// Whether the parts of what the writers save are of two moments.
    pub(crate) torn: bool,
    pub(crate) writers: [Writer; 2],
    pub(crate) replacer: Replacer,
    pub(crate) uploader: Uploader,
    pub(crate) pruners: [Pruner; 2],
    pub(crate) tagger: Tagger,
    /// Whether the second writer may commit.
    pub(crate) takes_over: bool,
    /// How many may yet die.
    pub(crate) crashes: u8,
    /// What somebody was told is safe, or keeps its tag.
    pub(crate) promised: Attempts,
    /// What a pruning removed that had planned to, or another attempt took the place of.
    pub(crate) excused: Attempts,
    /// What somebody was told keeps its tag: no pruning may remove it.
    pub(crate) tagged: Attempts,
}

/// A promise that is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// What was reported safe is gone, though nobody may have removed it.
    Lost,
    /// A committed step has parts of two moments.
    Torn,
    /// A reader finds a step that was deleted, and takes it for damaged.
    LooksDamaged,
}

impl State {
    pub(crate) fn new(bound: &Bound) -> Self {
        let pruner = |index| match index < bound.prunings {
            true => Pruner::new(bound.passes),
            false => Pruner::Ended,
        };
        Self {
            commit: None,
            hidden: None,
            deleted: None,
            lock: None,
            tag: false,
            files: [Files::default(); 3],
            torn: false,
            writers: [Writer::BEGIN; 2],
            replacer: match bound.replaces {
                true => Replacer::Write,
                false => Replacer::Ended,
            },
            uploader: match bound.uploads {
                true => Uploader::BEGIN,
                false => Uploader::Ended,
            },
            pruners: [pruner(0), pruner(1)],
            tagger: match bound.tags {
                true => Tagger::Look,
                false => Tagger::Ended,
            },
            takes_over: bound.takes_over,
            crashes: bound.crashes,
            promised: Attempts::default(),
            excused: Attempts::default(),
            tagged: Attempts::default(),
        }
    }

    pub(crate) fn files(&self, attempt: Attempt) -> Files {
        self.files[attempt as usize]
    }

    pub(crate) fn files_mut(&mut self, attempt: Attempt) -> &mut Files {
        &mut self.files[attempt as usize]
    }

    /// The attempt that is committed: what is under `COMMIT`, or else `HIDDEN`.
    ///
    /// Of two, one without files does not count. And one that somebody holds the lock to remove, and that is under `COMMIT` once more, was put by a writer who stood still:
    /// it was replaced before by what is hidden.
    pub(crate) fn standing(&self) -> Option<Attempt> {
        let (Some(commit), Some(hidden)) = (self.commit, self.hidden) else {
            return self.commit.or(self.hidden);
        };
        let wanted = self.lock.map_or(Attempts::default(), |lock| lock.wanted);
        let is_stale = wanted.contains(commit) && !wanted.contains(hidden);
        match is_stale || !self.files(commit).are_whole() {
            true => Some(hidden),
            false => Some(commit),
        }
    }

    /// Whether somebody lives who may yet commit an attempt. Files of others are nobody's work in progress after an hour.
    pub(crate) fn is_under_way(&self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Saved => self.writers.iter().any(|writer| writer.lives()),
            Attempt::Uploaded => self.uploader.lives(),
            Attempt::Replacement => self.replacer.lives(),
        }
    }

    /// Whether who holds the lock is dead; a lock is broken after an hour.
    pub(crate) fn lock_is_dead(&self) -> bool {
        self.lock.is_some_and(|lock| !self.lives(lock.who))
    }

    fn lives(&self, who: Who) -> bool {
        match who {
            Who::Writer(index) => self.writers[index].lives(),
            Who::Uploader => self.uploader.lives(),
            Who::Pruner(index) => self.pruners[index].lives(),
        }
    }

    /// Whether a pruning that hid something is dead, as far as others can tell.
    pub(crate) fn hidden_is_abandoned(&self, rules: &Rules) -> bool {
        match (rules.locks, self.lock) {
            (true, None) => true,
            (true, Some(_)) => self.lock_is_dead(),
            (false, _) => self.pruners.contains(&Pruner::Dead),
        }
    }

    /// Says that the attempts under `COMMIT` and `HIDDEN` were replaced, as they may be.
    pub(crate) fn excuse_all(&mut self, may: impl Fn(Attempt) -> bool) {
        for attempt in [self.commit, self.hidden].into_iter().flatten() {
            if may(attempt) {
                self.excused.insert(attempt);
            }
        }
    }

    /// The promise that is broken here, if one is.
    pub(crate) fn broken(&self) -> Option<Broken> {
        let standing = self.standing();
        for attempt in ATTEMPTS {
            let is_due = self.promised.contains(attempt) && !self.excused.contains(attempt);
            if is_due && (standing != Some(attempt) || !self.files(attempt).are_whole()) {
                return Some(Broken::Lost);
            }
        }
        let attempt = standing?;
        if attempt == Attempt::Saved && self.torn {
            return Some(Broken::Torn);
        }
        let files = self.files(attempt);
        // Of a step without any file, and of one that `DELETED` names, a reader says that it was deleted.
        let reads_as_deleted = files.are_gone() || self.deleted == Some(attempt);
        (!files.are_whole() && !reads_as_deleted).then_some(Broken::LooksDamaged)
    }

    /// The least of the states that differ only in which pruning is called the first.
    pub(crate) fn canonical(self) -> Self {
        let mut other = self;
        other.pruners.swap(0, 1);
        if let Some(lock) = &mut other.lock
            && let Who::Pruner(index) = lock.who
        {
            lock.who = Who::Pruner(1 - index);
        }
        let key = |state: &Self| (state.pruners, state.lock);
        if key(&other) < key(&self) {
            other
        } else {
            self
        }
    }
}
