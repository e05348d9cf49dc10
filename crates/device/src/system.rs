//! How much memory there is, as the system tells it.

mod available;

pub use available::available_bytes;
use std::path::Path;

/// Memory of this process and of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What the process has now.
    pub used_bytes: u64,
    /// The most it ever had.
    pub peak_bytes: u64,
    /// What the machine has.
    pub machine_bytes: u64,
}

impl Memory {
    /// What the system says; `None` if it does not.
    pub fn now() -> Option<Self> {
        let status = read("/proc/self/status")?;
        let machine = read("/proc/meminfo")?;
        Some(Self {
            used_bytes: field(&status, "VmRSS:")?,
            peak_bytes: field(&status, "VmHWM:")?,
            machine_bytes: field(&machine, "MemTotal:")?,
        })
    }
}

/// The bytes of addresses that this process may still take, if it is limited (`ulimit -v`).
pub fn address_space_left() -> Option<u64> {
    let limits = read("/proc/self/limits")?;
    let limit = address_space(&limits)?;
    let used = field(&read("/proc/self/status")?, "VmSize:")?;
    Some(limit.saturating_sub(used))
}

/// The soft limit on addresses in `/proc/self/limits`; `None` if there is none.
fn address_space(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The bytes after a name, which are told in KiB.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the system answers through files that are none"
)]
fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_process_uses_some_memory_and_less_than_there_is() {
        let memory = Memory::now().unwrap();
        assert!(memory.used_bytes > 0 && memory.used_bytes <= memory.peak_bytes);
        assert!(memory.peak_bytes < memory.machine_bytes);
    }

    #[test]
    fn a_limit_on_addresses_is_read_and_none_is_none() {
        let text = |limit: &str| {
            format!(
                "Max open files            1024   4096   files\nMax address space         {limit}            unlimited            bytes\n"
            )
        };
        assert_eq!(address_space(&text("6144000000")), Some(6_144_000_000));
        assert_eq!(address_space(&text("unlimited")), None);
        assert_eq!(address_space(""), None);
    }

    #[test]
    fn what_the_system_does_not_say_is_not_known() {
        let text = "MemFree:         100 kB\nVmRSS:\t  12 kB\n";
        assert_eq!(field(text, "VmRSS:"), Some(12 << 10));
        for text in [
            "",
            "VmRSS: x kB",
            "VmRSS: 12",
            "VmRSS: 99999999999999999999 kB",
        ] {
            assert_eq!(field(text, "VmRSS:"), None, "{text}");
        }
    }
}
