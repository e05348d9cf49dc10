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
