//! How much memory there is, as the system tells it.

use std::fs::read_to_string;

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
        let status = read_to_string("/proc/self/status").ok()?;
        let machine = read_to_string("/proc/meminfo").ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_uses_some_memory_and_less_than_there_is() {
        let memory = Memory::now().unwrap();
        assert!(memory.used_bytes > 0 && memory.used_bytes <= memory.peak_bytes);
        assert!(memory.peak_bytes < memory.machine_bytes);
    }

    #[test]
    fn what_the_system_does_not_say_is_not_known() {
        assert_eq!(field("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12 << 10));
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
