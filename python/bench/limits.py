"""What the disk itself can do: large writes and reads, direct and buffered, one file per rank, all at once."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor

from common import REPEATS, arguments, drop_cache, report, seconds

BLOCK_BYTES = 16 << 20
# Direct I/O wants page-aligned memory, which is what a mapping is.
BLOCK = mmap.mmap(-1, BLOCK_BYTES)
BLOCK.write(os.urandom(BLOCK_BYTES))


def open_direct(path, flags):
    """Past the page cache where the file system can, through it elsewhere."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(path, flags, 0o600)


def open_buffered(path, flags):
    """Through the page cache."""
    return os.open(path, flags, 0o600)


def write(open_file, path, blocks):
    """A new file of `blocks` blocks, on the disk when this returns."""
    path.unlink(missing_ok=True)
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT)
    for block in range(blocks):
        assert os.pwrite(descriptor, BLOCK, block * BLOCK_BYTES) == BLOCK_BYTES
    os.fsync(descriptor)
    os.close(descriptor)


def read(open_file, path, blocks):
    """The whole file, from the disk."""
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    drop_cache(path)
    descriptor = open_file(path, os.O_RDONLY)
    for block in range(blocks):
        assert os.preadv(descriptor, [buffer], block * BLOCK_BYTES) == BLOCK_BYTES
    os.close(descriptor)


def main():
    directory, size_bytes, ranks = arguments()
    blocks = max(1, size_bytes // (ranks * BLOCK_BYTES))
    paths = [directory / f"limit-{rank}" for rank in range(ranks)]

    def all_at_once(work, open_file):
        with ThreadPoolExecutor(ranks) as pool:
            return seconds(lambda: list(pool.map(lambda path: work(open_file, path, blocks), paths)))

    total = ranks * blocks * BLOCK_BYTES
    for direction, work in (("write", write), ("read", read)):
        for how, open_file in (("direct", open_direct), ("buffered", open_buffered)):
            timings = [all_at_once(work, open_file) for _ in range(REPEATS)]
            report("disk", f"{how} {direction}", direction, total, timings)
    for path in paths:
        path.unlink()


if __name__ == "__main__":
    main()
