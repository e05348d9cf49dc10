//! What can go wrong with memory and devices.

/// A failure of a device, or of memory.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to talk to.
    #[error("there is no CUDA driver here: {reason}")]
    NoDriver {
        /// What was looked for.
        reason: String,
    },
    /// A driver is there but cannot be used.
    #[error("the CUDA driver cannot be used: {reason}")]
    Driver {
        /// What it says.
        reason: String,
    },
    /// There is no such device.
    #[error("there is no device cuda:{ordinal}: the driver has {count}")]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A call of the driver failed.
    #[error("{device}: cannot {doing}: {reason}")]
    Call {
        /// The device.
        device: String,
        /// What was tried.
        doing: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The device's memory is full.
    #[error("{device}: no room for {len_bytes} bytes of scratch memory")]
    NoScratch {
        /// The device.
        device: String,
        /// What was asked for.
        len_bytes: usize,
    },
    /// The host's memory is full.
    #[error("no room for {len_bytes} bytes of staging memory")]
    NoMemory {
        /// What was asked for.
        len_bytes: usize,
    },
    /// Memory cannot be shared between processes.
    #[error("cannot {doing} shared memory: {reason}")]
    Shared {
        /// What was tried.
        doing: &'static str,
        /// What the system says, or what is wrong with it.
        reason: String,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDriver { .. } => {
                "state in host memory needs no driver; for tensors on a GPU install NVIDIA's driver (libcuda.so.1)"
            }
            Self::Driver { .. } => {
                "`nvidia-smi` shows whether the driver and its library belong together"
            }
            Self::NoDevice { .. } => "CUDA_VISIBLE_DEVICES says which devices a process sees",
            Self::Call { .. } => {
                "an earlier failure of the device shows itself late: look for one in the training program"
            }
            Self::NoScratch { .. } => "allow less device memory for scratch",
            Self::Shared { .. } => {
                "saves go on in memory of their own; `cairn keeper status` shows what the keeper holds"
            }
            Self::NoMemory { .. } => "allow less staging memory: the save then goes through a ring",
        };
        Some(hint.into())
    }
}
