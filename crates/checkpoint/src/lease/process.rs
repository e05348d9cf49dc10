//! Which process this is, so that others on the same machine can tell whether it still lives.

use cairn_store::{system_link, system_text as read};
use serde::{Deserialize, Serialize};

/// A process, told from all others that ever had its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it started, in ticks since the machine did.
    pub(super) started: u64,
    /// Stands for the machine since it started.
    pub(super) boot: String,
    /// Among which processes its number counts: containers of one machine have numbers of their own.
    pub(super) namespace: String,
}

impl Process {
    /// This one; `None` where the system does not tell.
    pub(super) fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            pid,
            started: started(pid)?,
            boot: read("/proc/sys/kernel/random/boot_id")?.trim().to_string(),
            namespace: namespace()?,
        })
    }

    /// Whether it lives, as `here` sees it; `None` if it cannot be seen from there.
    pub(super) fn is_alive(&self, here: &Process) -> Option<bool> {
        let is_near = self.boot == here.boot && self.namespace == here.namespace;
        // Where processes of other users are hidden, that one is not seen says nothing.
        let is_shown = is_near && started(1).is_some();
        is_shown.then(|| started(self.pid) == Some(self.started))
    }
}

/// The name of this machine, for messages.
pub(super) fn host() -> String {
    let name = read("/proc/sys/kernel/hostname").or_else(|| std::env::var("HOSTNAME").ok());
    name.map_or("this machine".into(), |name| name.trim().to_string())
}

/// When a process started; `None` if there is none, or only what its parent has not yet heard of.
fn started(pid: u32) -> Option<u64> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok())?
}

fn namespace() -> Option<String> {
    system_link("/proc/self/ns/pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn this_process_lives_and_an_earlier_one_with_its_number_does_not() {
        let own = Process::own().unwrap();
        assert_eq!(own.is_alive(&own), Some(true));
        let mut earlier = own.clone();
        earlier.started -= 1;
        assert_eq!(earlier.is_alive(&own), Some(false));
        earlier.boot = "another".into();
        assert_eq!(earlier.is_alive(&own), None);
    }
}
