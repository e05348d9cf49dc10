"""What the measuring scripts share, on top of `python/bench/common.py`: the raw disk, paired rounds, values with a target."""

import json
import mmap
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python/bench"))

from common import seconds  # noqa: E402

BLOCK = 8 << 20
ROUNDS = 5


def value(phase, number, unit, **target):
    """Prints one number; `target` is `at_least=` or `at_most=`."""
    line = {"system": "cairn for Python", "phase": phase, "unit": unit, "value": number}
    if target:
        line["target"] = target
    print(json.dumps(line), flush=True)


def paired(phase, direction, size_bytes, ours, ceiling, **target):
    """Prints a phase with what the raw disk took in the same rounds."""
    line = {"system": "cairn for Python", "phase": phase, "direction": direction, "bytes": size_bytes}
    line |= {"seconds": ours, "ceiling_seconds": ceiling}
    if target:
        line["target"] = target
    print(json.dumps(line), flush=True)


def median(numbers):
    """The middle one of some numbers."""
    return sorted(numbers)[len(numbers) // 2]


def ratio(theirs, ours):
    """How many times faster we are: the median of the rounds, each compared with its own rival."""
    return median([their / our for their, our in zip(theirs, ours, strict=True)])


def aligned():
    """A page-aligned buffer, filled with something that is not zero."""
    buffer = mmap.mmap(-1, BLOCK)
    buffer.write(os.urandom(4096) * (BLOCK // 4096))
    return buffer


def raw_write(path, size_bytes, buffer):
    """Writes whole blocks around the page cache and waits until they are durable."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    os.posix_fallocate(descriptor, 0, -(-size_bytes // BLOCK) * BLOCK)
    for _ in range(-(-size_bytes // BLOCK)):
        os.write(descriptor, buffer)
    os.fsync(descriptor)
    os.close(descriptor)


def raw_read(path, buffer):
    """Reads a file around the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    while os.readv(descriptor, [buffer]) > 0:
        pass
    os.close(descriptor)


def rotated(contenders, rounds, before=None):
    """Seconds of each contender in every round; the order rotates, because who comes first meets a rested disk.

    The first round warms up and is not counted.
    """
    names = list(contenders)
    timings = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            if before is not None:
                before(name)
            elapsed = contenders[name]()
            if number:
                timings[name].append(elapsed)
    return timings


__all__ = ["BLOCK", "ROUNDS", "aligned", "median", "paired", "ratio", "raw_read", "raw_write", "rotated", "seconds", "value"]
