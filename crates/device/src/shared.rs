//! Memory that several processes see, and that is there for as long as one of them wants it.

use crate::Error;
use crate::buffer::Buffer;
use crate::slab::{Origin, Slab, SlabOptions, is_available};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// What nobody can do to it: a mapping that its owner cuts short would end whoever reads it.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Memory without a name in any folder, of a length that never changes. It is handed from process to process as an open file.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    len: u64,
}

/// Shared memory in the address space of this process, which buffers are cut from.
#[derive(Debug)]
pub struct Mapping {
    slab: Arc<Slab>,
}

impl SharedMemory {
    /// New memory of `len` bytes, all zero. Pages are found when they are first written to.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is none, or so little that touching it could end a process.
    pub fn create(len: u64) -> Result<Self, Error> {
        if !is_available(len) {
            let len_bytes = usize::try_from(len).unwrap_or(usize::MAX);
            return Err(Error::NoMemory { len_bytes });
        }
        let failed = |error| refused("create", error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("cairn", flags).map_err(failed)?;
        rustix::fs::ftruncate(&file, len).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(failed)?;
        Ok(Self { file, len })
    }

    /// Memory that another process handed over.
    ///
    /// # Errors
    /// [`Error::Shared`] if it is none, or if somebody could still change its length.
    pub fn received(file: OwnedFd) -> Result<Self, Error> {
        let failed = |error| refused("receive", error);
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(failed)?;
        if !seals.contains(SEALS) {
            return Err(Error::Shared {
                doing: "receive",
                reason: "its length is not sealed".into(),
            });
        }
        let len = rustix::fs::fstat(&file).map_err(failed)?.st_size;
        let len = u64::try_from(len).unwrap_or(0);
        Ok(Self { file, len })
    }

    /// How many bytes there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same memory as a file that can be read and not written.
    ///
    /// # Errors
    /// If the system does not open it again.
    pub fn read_only(&self) -> Result<OwnedFd, Error> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| refused("open", error))
    }

    /// Copies the bytes from `offset` on, whatever others do to them meanwhile.
    ///
    /// # Errors
    /// If they are not all there.
    pub fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<(), Error> {
        while !buffer.is_empty() {
            match rustix::io::pread(&self.file, &mut *buffer, offset) {
                Ok(0) => {
                    return Err(Error::Shared {
                        doing: "read",
                        reason: format!("it has {} bytes", self.len),
                    });
                }
                Ok(count) => {
                    offset += count as u64;
                    buffer = &mut buffer[count..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(refused("read", error)),
            }
        }
        Ok(())
    }

    /// Puts the memory into the address space of this process. The second value says why it is not pinned, if it should be and is not.
    ///
    /// # Errors
    /// If it is empty, or the system refuses.
    pub fn map(&self, options: &SlabOptions) -> Result<(Mapping, Option<Error>), Error> {
        let failed = |error| refused("map", error);
        let len = usize::try_from(self.len).map_err(|_| failed(Errno::NOMEM))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice, of a file whose length is sealed.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                &self.file,
                0,
            )
        };
        let start = NonNull::new(start.map_err(failed)?.cast::<u8>());
        let start = start.ok_or_else(|| failed(Errno::NOMEM))?;
        // SAFETY: all of the new mapping. Others that have the memory read it as a file, and say when they will write to it.
        let mut slab = unsafe { Slab::new(start, len, Origin::Mapping) };
        let refusal = slab.prepare(options);
        let slab = Arc::new(slab);
        Ok((Mapping { slab }, refusal))
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Mapping {
    /// Divides the memory into buffers of `len` bytes, in their order; `None` for as long as one of an earlier division is about.
    pub fn cut(&mut self, len: usize) -> Option<Vec<Buffer>> {
        Arc::get_mut(&mut self.slab)?;
        Some(Slab::cut(&self.slab, len))
    }
}

fn refused(doing: &'static str, error: Errno) -> Error {
    Error::Shared {
        doing,
        reason: error.to_string(),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    //! What one side writes, the other reads; and nobody can cut it short.

    use super::*;

    const LEN: u64 = 4 << 12;

    #[test]
    fn what_is_written_to_a_mapping_is_read_by_whoever_got_the_memory() {
        let memory = SharedMemory::create(LEN).unwrap();
        let (mut mapping, _) = memory.map(&SlabOptions::default()).unwrap();
        let mut buffers = mapping.cut(1 << 12).unwrap();
        assert_eq!(buffers.len(), 4);
        assert!(buffers[0].is_shared());
        buffers[2].fill(7);
        let other = SharedMemory::received(memory.file.try_clone().unwrap()).unwrap();
        let mut read = vec![0; 1 << 12];
        other.read_at(2 << 12, &mut read).unwrap();
        assert_eq!(read, buffers[2][..]);
        assert!(other.read_at(LEN - 1, &mut [0; 2]).is_err());
    }

    #[test]
    fn a_mapping_is_cut_again_when_the_buffers_before_are_gone() {
        let memory = SharedMemory::create(LEN).unwrap();
        let (mut mapping, _) = memory.map(&SlabOptions::default()).unwrap();
        let mut buffers = mapping.cut(1 << 12).unwrap();
        assert!(mapping.cut(1 << 12).is_none());
        let last = buffers.pop();
        drop(buffers);
        assert!(mapping.cut(1 << 12).is_none());
        drop(last);
        assert_eq!(mapping.cut(1 << 13).unwrap().len(), 2);
    }

    #[test]
    fn nobody_cuts_it_short_and_a_reader_does_not_write() {
        let memory = SharedMemory::create(LEN).unwrap();
        assert!(rustix::fs::ftruncate(&memory, LEN - 1).is_err());
        assert!(rustix::fs::ftruncate(&memory, LEN + 1).is_err());
        let reader = memory.read_only().unwrap();
        assert!(rustix::io::write(&reader, b"x").is_err());
        assert!(SharedMemory::received(reader).is_ok());
    }

    #[test]
    fn memory_whose_length_can_change_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("open", flags).unwrap();
        assert!(SharedMemory::received(open).is_err());
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(matches!(
            SharedMemory::create(1 << 60),
            Err(Error::NoMemory { .. })
        ));
    }
}
