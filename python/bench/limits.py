"""What the disk itself can do: large direct writes and reads, one file per rank, all at once."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor

from common import REPEATS, arguments, report, seconds

BLOCK_BYTES = 16 << 20


def open_direct(path, flags):
    """Past the page cache where the file system can, through it elsewhere."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(path, flags, 0o600)


def write(path, blocks, buffer):
    descriptor = open_direct(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for block in range(blocks):
        assert os.pwrite(descriptor, buffer, block * BLOCK_BYTES) == BLOCK_BYTES
    os.fsync(descriptor)
    os.close(descriptor)


def read(path, blocks):
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    descriptor = open_direct(path, os.O_RDONLY)
    for block in range(blocks):
        assert os.preadv(descriptor, [buffer], block * BLOCK_BYTES) == BLOCK_BYTES
    os.close(descriptor)


def main():
    directory, size_bytes, ranks = arguments()
    blocks = max(1, size_bytes // (ranks * BLOCK_BYTES))
    paths = [directory / f"limit-{rank}" for rank in range(ranks)]
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    buffer.write(os.urandom(BLOCK_BYTES))

    with ThreadPoolExecutor(ranks) as pool:
        writes = [seconds(lambda: list(pool.map(lambda path: write(path, blocks, buffer), paths))) for _ in range(REPEATS)]
        reads = [seconds(lambda: list(pool.map(lambda path: read(path, blocks), paths))) for _ in range(REPEATS)]
    for path in paths:
        path.unlink()

    total = ranks * blocks * BLOCK_BYTES
    report("disk", "write", "write", total, writes)
    report("disk", "read", "read", total, reads)


if __name__ == "__main__":
    main()
