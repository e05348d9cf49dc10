//! How much memory the system would still give.
//!
//! Systems promise more memory than they have and end a process when it touches too much. So what is about to be touched is compared with what is left: on
//! the machine, and in the control group of this process (version 1 or 2), which is what holds a container.

use super::{field, read};
use std::path::{Path, PathBuf};

/// The bytes that the system would still give to this process, if it tells.
pub fn available_bytes() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:"));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let group = group_folders(&groups);
    let group = group.iter().filter_map(|folder| group_leaves(folder)).min();
    machine.into_iter().chain(group).min()
}

/// Where the limits of the control groups in `/proc/self/cgroup` may be: inside a container a group sees itself as the root.
fn group_folders(text: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|name| name == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        let inner = Path::new(root).join(path.trim_start_matches('/'));
        folders.extend(
            inner
                .ancestors()
                .take_while(|at| at.starts_with(root))
                .map(Path::to_path_buf),
        );
    }
    folders
}

/// What one control group leaves: its limit less what it uses, not counting the files it could forget.
fn group_leaves(folder: &Path) -> Option<u64> {
    let number = |name: &str| read(folder.join(name))?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let files = read(folder.join("memory.stat")).map_or(0, |text| forgettable(&text));
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

/// The pages of files in `memory.stat`, with those of the groups inside, which version 1 calls `total_…`.
fn forgettable(text: &str) -> u64 {
    let field = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(key, value)| (key == name).then(|| value.trim().parse().ok())?)
    };
    let both = |kind: &str| {
        field(&format!("total_{kind}"))
            .or_else(|| field(kind))
            .unwrap_or(0)
    };
    both("inactive_file").saturating_add(both("active_file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells() {
        let available = available_bytes();
        #[cfg(all(target_os = "linux", not(miri)))]
        assert!(available.is_some_and(|bytes| bytes > 1 << 20));
        let _ = available;
    }

    #[test]
    fn groups_are_looked_for_up_to_the_root() {
        let found = group_folders("4:memory:/a/b\n1:cpu:/x\n0::/c\nnonsense\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/c",
            "/sys/fs/cgroup",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn files_that_can_be_forgotten_do_not_count() {
        assert_eq!(forgettable("anon 5\ninactive_file 30\nactive_file 4\n"), 34);
        let first = "inactive_file 1\nactive_file 1\ntotal_inactive_file 30\ntotal_active_file 4\n";
        assert_eq!(forgettable(first), 34);
        assert_eq!(forgettable(""), 0);
    }
}
