//! Which names of Python modules a pickle may use, and how; and what of it is kept in memory.

/// The names a pickle may use: everything else is refused.
///
/// A name is a module and what it defines, such as `torch.Size`; `numpy.*` stands for all names that begin with `numpy.`.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    mentioned: Vec<&'static str>,
    built: Vec<&'static str>,
    called: Vec<&'static str>,
    leaves_bytes: bool,
}

impl Policy {
    /// No name at all: numbers, strings and containers only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also allows these names as plain mentions, such as `torch.float32`.
    #[must_use]
    pub fn mention(mut self, names: &[&'static str]) -> Self {
        self.mentioned.extend(names);
        self
    }

    /// Also allows objects of these classes, made from arguments and a state.
    #[must_use]
    pub fn build(mut self, classes: &[&'static str]) -> Self {
        self.built.extend(classes);
        self
    }

    /// Also allows calls of these names to be written down.
    #[must_use]
    pub fn call(mut self, callables: &[&'static str]) -> Self {
        self.called.extend(callables);
        self
    }

    /// Leaves every byte string in the file, also short ones: their place is what matters.
    #[must_use]
    pub fn leave_bytes(mut self) -> Self {
        self.leaves_bytes = true;
        self
    }

    pub(super) fn leaves_bytes(&self) -> bool {
        self.leaves_bytes
    }

    pub(super) fn may_mention(&self, name: &str) -> bool {
        matches(&self.mentioned, name) || self.may_build(name) || self.may_call(name)
    }

    pub(super) fn may_build(&self, name: &str) -> bool {
        matches(&self.built, name)
    }

    pub(super) fn may_call(&self, name: &str) -> bool {
        matches(&self.called, name)
    }
}

fn matches(patterns: &[&str], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
}
