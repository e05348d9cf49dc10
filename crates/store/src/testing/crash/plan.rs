//! When and how a store dies.

/// When and how a [`CrashStore`](super::CrashStore) dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPlan {
    /// The operation at which it dies, counted from 0.
    pub at: u64,
    /// How much of that operation still happens.
    pub effect: Effect,
    /// What is found of objects that were created and not finished.
    pub leftovers: Leftovers,
}

/// How much of the last operation still happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Half of the bytes of a `write_at`, and nothing of a `put`, `finish`, `rename` or `delete`.
    Half,
    /// All of it; only the answer is lost.
    Full,
}

/// What is found of an object that was created and not finished.
///
/// A file system may leave any of these under the object's name if a writer works in place, so a
/// protocol that survives them survives every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    /// Nothing.
    Gone,
    /// The first half of the object, with zeros where nothing was written.
    Partial,
    /// The object in full length, with zeros where nothing was written.
    Zeroed,
}

impl CrashPlan {
    /// Every way to die in a run of so many operations.
    pub fn all(operations: u64) -> impl Iterator<Item = Self> {
        let effects = [Effect::None, Effect::Half, Effect::Full];
        let leftovers = [Leftovers::Gone, Leftovers::Partial, Leftovers::Zeroed];
        (0..operations).flat_map(move |at| {
            effects.into_iter().flat_map(move |effect| {
                leftovers.into_iter().map(move |leftovers| Self {
                    at,
                    effect,
                    leftovers,
                })
            })
        })
    }
}
