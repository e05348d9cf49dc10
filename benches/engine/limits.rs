//! What the disk can do: large direct writes and reads with nothing else around them.

use cairn::store::AlignedBuffer;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const CHUNK: usize = 8 << 20;
const READ_THREADS: usize = 4;

fn direct(options: &mut OpenOptions, path: &Path) -> File {
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags are small");
    let opened = options.custom_flags(flags).open(path);
    opened.expect("the file can be opened for direct I/O")
}

/// Writes `len` bytes to a new file in one direct stream and makes them durable.
pub(crate) fn write(path: &Path, len: u64) {
    let file = direct(
        OpenOptions::new().write(true).create(true).truncate(true),
        path,
    );
    let mut buffer = AlignedBuffer::new(CHUNK);
    crate::work::fill(&mut buffer, 0);
    for offset in (0..len).step_by(CHUNK) {
        file.write_all_at(&buffer, offset).expect("a direct write");
    }
    file.sync_all().expect("fsync");
}

/// Reads files with direct reads, several in flight.
pub(crate) fn read(paths: &[PathBuf]) {
    let files: Vec<File> = paths
        .iter()
        .map(|path| direct(OpenOptions::new().read(true), path))
        .collect();
    let mut chunks = Vec::new();
    for file in &files {
        let len = file.metadata().expect("a length").len();
        chunks.extend((0..len).step_by(CHUNK).map(|offset| (file, offset)));
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..READ_THREADS {
            scope.spawn(|| {
                let mut buffer = AlignedBuffer::new(CHUNK);
                while let Some((file, offset)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = file.read_at(&mut buffer, *offset).expect("a direct read");
                }
            });
        }
    });
}
