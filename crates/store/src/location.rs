//! Where objects really lie, by whatever name they are reached.

use std::fmt;

/// Where an object, or a folder of them, really lies: with links followed, and every `..` taken out.
///
/// Two stores that reach the same bytes under different names, such as a path and a link to it, give them the same
/// location. Whoever writes to one place while reading from another compares the two first.
#[derive(Debug, Clone)]
pub struct Location {
    place: String,
    /// Device and number of what is there, then of the folders above it; `None` for what does not exist.
    nodes: Vec<Option<(u64, u64)>>,
}

impl Location {
    /// What an address stands for, where no other address stands for the same.
    pub(crate) fn named(url: &str, key: &str) -> Self {
        Self::with_nodes(&join(url, key), Vec::new())
    }

    pub(crate) fn with_nodes(place: &str, nodes: Vec<Option<(u64, u64)>>) -> Self {
        let place = place.trim_end_matches('/').to_string();
        Self { place, nodes }
    }

    /// Whether both are the same object or folder.
    pub fn is(&self, other: &Self) -> bool {
        let node = |location: &Self| location.nodes.first().copied().flatten();
        let same_node = node(self).is_some() && node(self) == node(other);
        same_node || self.place == other.place
    }

    /// Whether this is `folder`, or lies in it at any depth.
    pub fn is_in(&self, folder: &Self) -> bool {
        let below = self.place.strip_prefix(&folder.place);
        let is_named_so = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
        let node = folder.nodes.first().copied().flatten();
        is_named_so || node.is_some_and(|node| self.nodes.contains(&Some(node)))
    }

    /// The folder that it lies in, by name.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.place.rsplit_once('/')?;
        let nodes = self.nodes.get(1..).unwrap_or_default().to_vec();
        Some(Self::with_nodes(parent, nodes))
    }

    /// Its last name.
    pub fn name(&self) -> &str {
        self.place.rsplit('/').next().unwrap_or_default()
    }

    /// What lies under `name` in this folder, by name alone.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self::named(&self.place, name)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.place)
    }
}

fn join(url: &str, key: &str) -> String {
    match key {
        "" => url.to_string(),
        key => format!("{}/{key}", url.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Local, Memory, Store};
    use std::os::unix::fs::symlink;

    fn only(store: &dyn Store, key: &str) -> Location {
        store.locations(key).remove(0)
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it makes what is then looked at")]
    fn one_file_has_one_location_by_all_its_names() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir_all(path("a/sub")).unwrap();
        std::fs::write(path("a/w"), b"w").unwrap();
        symlink(path("a"), path("link")).unwrap();
        symlink(path("a/w"), path("file")).unwrap();
        let a = only(&Local::new(path("a")), "");
        let w = only(&Local::new(path("a")), "w");
        for name in ["link", "a/sub/..", "link/sub/../", "./a", "a/none/.."] {
            let store = Local::new(path(name));
            assert!(only(&store, "").is(&a), "{name}");
            assert!(only(&store, "w").is(&w), "{name}");
            assert!(only(&store, "new").is_in(&a), "{name}");
            assert!(only(&store, "none/deep/new").is_in(&a), "{name}");
        }
        let file = only(&Local::new(place.path()), "file");
        assert!(file.is(&w) && file.is_in(&a));
        let beside = only(&Local::new(path("ab")), "");
        assert!(!beside.is_in(&a) && !a.is_in(&beside) && !a.is(&w));
    }

    #[test]
    fn memories_are_told_apart_and_their_clones_are_not() {
        let [one, two] = [Memory::new(), Memory::new()];
        let at = |store: &Memory| only(store, "x");
        assert!(at(&one).is(&at(&one.clone())) && at(&one).is_in(&only(&one, "")));
        assert!(!at(&one).is(&at(&two)) && !at(&one).is_in(&only(&two, "")));
    }
}
