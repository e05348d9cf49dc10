//! Orders of moves: one that keeps every promise, and mistakes in it; and how much of the world is searched.

/// In which order the machines make their moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A writer that fails and saves again does so under another name.
    pub counts_attempts: bool,
    /// Who creates `COMMIT` looks for another attempt when all its parts are there, and not after it has put it.
    pub looks_before_put: bool,
    /// A pruning leaves a step alone for which another attempt is complete.
    pub minds_rivals: bool,
    /// Who removes a manifest holds the lock of the step.
    pub locks: bool,
    /// Nothing is hidden over what is hidden.
    pub hides_create_only: bool,
    /// `COMMIT` is taken back as a pruning takes it: moved, compared, and only then deleted.
    pub takes_back_what_it_compared: bool,
    /// An upload that replaces an older attempt replaces that one, and no other.
    pub uploads_over_what_it_compared: bool,
    /// Who replaces a step waits for a removal that is under way, and looks whether it is there afterwards.
    pub waits_for_removals: bool,
}

impl Rules {
    /// An order that keeps every promise.
    pub const PROVEN: Self = Self {
        counts_attempts: true,
        looks_before_put: true,
        minds_rivals: true,
        locks: true,
        hides_create_only: true,
        takes_back_what_it_compared: true,
        uploads_over_what_it_compared: true,
        waits_for_removals: true,
    };

    /// The least that keeps every promise where nothing is uploaded. What it lacks needs a second launch that creates the step, such as an
    /// upload, beside all the others.
    pub const LEAST: Self = Self {
        minds_rivals: false,
        uploads_over_what_it_compared: false,
        waits_for_removals: false,
        ..Self::PROVEN
    };

    /// That order with a mistake.
    pub fn with(mistake: Mistake) -> Self {
        let mut rules = Self::PROVEN;
        match mistake {
            Mistake::CountedBeforeAlone => {
                rules.looks_before_put = false;
                rules.minds_rivals = false;
            }
            Mistake::TakenBackByKey => rules.takes_back_what_it_compared = false,
            Mistake::HiddenOverHidden => {
                rules.locks = false;
                rules.hides_create_only = false;
            }
            Mistake::UploadedOverYounger => rules.uploads_over_what_it_compared = false,
            Mistake::RivalsForgotten => rules.minds_rivals = false,
            Mistake::Unlocked => rules.locks = false,
            Mistake::NotWaitedFor => rules.waits_for_removals = false,
            Mistake::AttemptsUncounted => rules.counts_attempts = false,
        }
        rules
    }
}

/// An order of moves that breaks a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// `COMMIT` is created whatever a pruning has hidden, others count on it, and then it is taken back for what is hidden.
    CountedBeforeAlone,
    /// `COMMIT` is read, and then its key is deleted, whatever is there by then.
    TakenBackByKey,
    /// A pruning hides a step over what another one has hidden, and confirms what it has not compared.
    HiddenOverHidden,
    /// An upload sees an older attempt and puts its own in the place of a younger one that came meanwhile.
    UploadedOverYounger,
    /// A pruning hides a step while another attempt is about to be committed, and cannot bring it back.
    RivalsForgotten,
    /// Two prunings are at one step.
    Unlocked,
    /// A replacement is put while a removal decides between what it hid and what it found.
    NotWaitedFor,
    /// A writer that failed saves another moment under the same name.
    AttemptsUncounted,
}

impl Mistake {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::CountedBeforeAlone,
        Self::TakenBackByKey,
        Self::HiddenOverHidden,
        Self::UploadedOverYounger,
        Self::RivalsForgotten,
        Self::Unlocked,
        Self::NotWaitedFor,
        Self::AttemptsUncounted,
    ];
}

/// Who is there, and how often somebody dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Prunings at the same time: up to 2.
    pub prunings: usize,
    /// How often each plans and deletes.
    pub passes: u8,
    /// Whether another launch replaces the step.
    pub replaces: bool,
    /// Whether an earlier launch's attempt is uploaded.
    pub uploads: bool,
    /// Whether somebody tags the step.
    pub tags: bool,
    /// Whether the second writer commits, too, if the first does not.
    pub takes_over: bool,
    /// How many machines die, at any move.
    pub crashes: u8,
}

impl Bound {
    /// For every change: seconds without optimisation.
    pub const SMALL: Self = Self {
        prunings: 2,
        passes: 1,
        replaces: true,
        uploads: false,
        tags: false,
        takes_over: true,
        crashes: 2,
    };

    /// For `cargo xtask protocol`: everybody but who tags, and two deaths.
    pub const FULL: Self = Self {
        prunings: 2,
        passes: 1,
        replaces: true,
        uploads: true,
        tags: false,
        takes_over: true,
        crashes: 2,
    };
}
