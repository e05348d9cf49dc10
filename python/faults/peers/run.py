"""What tools that keep training state do when something goes wrong: saves, does harm, loads, and writes docs/faults.md.

    run.py [TOOL…] [--folder DIR] [--table FILE]

Each tool does its work in processes that are killed, on files that are harmed, on a disk that is full. A result is what the tool says, and
what a load gives then: the state that was saved `first`, the `second` one, an error, or WRONG BYTES, which is a state that nobody ever saved
and no error. A tool that cannot be imported is left out, with a line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
from tools import TOOLS, Tool

#: How many saves of each kind are killed, and how many bits are flipped.
MOMENTS = 12
FLIPS = 12
#: A disk that takes half of the state.
DISK_LEN_BYTES = harness.LEN_BYTES // 2


class Trial:
    """All faults, one tool."""

    def __init__(self, tool: Tool, root: Path) -> None:
        self.tool, self.root = tool, root
        self.whole = root / "whole"
        said = harness.saved(tool, self.whole, 1)
        found = harness.loaded(tool, self.whole)
        if (said, found) != ("says saved", "first"):
            raise RuntimeError(f"an undisturbed save {said} and loads as {found}")
        self.seconds = harness.seconds_of(tool, root / "timed")

    def killed(self) -> Iterator[str]:
        """A first save is killed: nothing is there to fall back on."""
        for moment in range(MOMENTS):
            folder = self.root / "killed"
            harness.saved_until(self.tool, folder, 1, self.seconds * (moment + 0.5) / MOMENTS)
            yield harness.loaded(self.tool, folder)
            _remove(folder)

    def overwritten(self) -> Iterator[str]:
        """A second save to the same place is killed."""
        for moment in range(MOMENTS):
            with self.copy() as folder:
                harness.saved_until(self.tool, folder, 2, self.seconds * (moment + 0.5) / MOMENTS)
                yield harness.loaded(self.tool, folder)

    def resaved(self) -> Iterator[str]:
        """A second save to the same place that nothing disturbs."""
        with self.copy() as folder:
            said = harness.saved(self.tool, folder, 2)
            yield f"{said}, then: {harness.loaded(self.tool, folder)}"

    def flipped(self) -> Iterator[str]:
        """One bit of all that was saved is flipped, anywhere."""
        rng = random.Random(1)
        for _ in range(FLIPS):
            with self.copy() as folder:
                files = _files(folder)
                path = rng.choices(files, [file.stat().st_size for file in files])[0]
                data = bytearray(path.read_bytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                path.write_bytes(data)
                yield harness.loaded(self.tool, folder)

    def truncated(self) -> Iterator[str]:
        """Each file in turn loses its second half."""
        yield from self.each(lambda path: os.truncate(path, path.stat().st_size // 2))

    def zeroed(self) -> Iterator[str]:
        """Each file in turn ends in zeros, as after a loss of power on a file system that had its size but not its data."""
        yield from self.each(_zero)

    def missing(self) -> Iterator[str]:
        """Each file in turn is not there."""
        yield from self.each(lambda path: path.unlink())

    def each(self, harm: Callable[[Path], None]) -> Iterator[str]:
        for index in range(len(_files(self.whole))):
            with self.copy() as folder:
                harm(_files(folder)[index])
                yield harness.loaded(self.tool, folder)

    def full(self) -> Iterator[str]:
        """The disk takes half of it."""
        disk = self.root / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_LEN_BYTES}", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            yield "not tried: needs root"
            return
        try:
            said = harness.saved(self.tool, disk / "saved", 1)
            yield f"{said}, then: {harness.loaded(self.tool, disk / 'saved')}"
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def dead_rank(self) -> Iterator[str]:
        """One of two ranks is killed as the save begins; what the other is told."""
        folder = self.root / "shared"
        said = harness.saved_with_a_dead_rank(self.tool, folder)
        yield f"{said}, then: {harness.loaded(self.tool, folder)}"

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A whole checkpoint, to be harmed."""
        folder = self.root / "harmed"
        shutil.copytree(self.whole, folder)
        try:
            yield folder
        finally:
            _remove(folder)


FAULTS: list[tuple[str, Callable[[Trial], Iterator[str]]]] = [
    ("saved twice to one place, undisturbed", Trial.resaved),
    (f"killed during the first save, {MOMENTS} moments", Trial.killed),
    (f"killed while saving over an older one, {MOMENTS} moments", Trial.overwritten),
    (f"one bit flipped, {FLIPS} places", Trial.flipped),
    ("a file cut in half, each in turn", Trial.truncated),
    ("a file that ends in zeros, each in turn", Trial.zeroed),
    ("a file missing, each in turn", Trial.missing),
    ("a full disk", Trial.full),
    ("one of two ranks dead", Trial.dead_rank),
]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _zero(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)


def _remove(folder: Path) -> None:
    """With what tools leave beside it."""
    for path in folder.parent.glob(f"{folder.name}*"):
        shutil.rmtree(path)


def try_all(name: str, root: Path) -> dict[str, str]:
    """The results of one tool, by fault."""
    tool = TOOLS[name]()
    results = {"tool": tool.name, "version": tool.version()}
    trial = Trial(tool, root)
    for fault, tried in FAULTS:
        counts = Counter(tried(trial))
        results[fault] = ", ".join(f"{count}× {what}" if counts.total() > 1 else what for what, count in sorted(counts.items()))
        print(f"{tool.name}: {fault}: {results[fault]}", file=sys.stderr, flush=True)
    return results


def table(results: list[dict[str, str]]) -> str:
    """One column for each tool."""
    lines = ["| | " + " | ".join(result["tool"] for result in results) + " |", "|---" * (len(results) + 1) + "|"]
    for fault, _ in FAULTS:
        lines.append(f"| {fault} | " + " | ".join(_marked(result[fault]) for result in results) + " |")
    versions = sorted({result["version"] for result in results})
    return "\n".join([*lines, "", f"Versions: {', '.join(versions)}.", ""])


def _marked(text: str) -> str:
    return text.replace("WRONG BYTES", "**wrong bytes, no error**")


def main() -> int:
    """Tries every tool in a process of its own, since frameworks do not live together, and puts the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all of them if none is named")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--table", type=Path, default=Path(__file__).parents[3] / "docs" / "faults.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-peers-", dir=arguments.folder) as root:
        if arguments.one:
            print(json.dumps(try_all(arguments.one, Path(root))))
            return 0
        results = []
        for name in arguments.tools or TOOLS:
            done = subprocess.run([sys.executable, __file__, "--one", name, "--folder", root], stdout=subprocess.PIPE, text=True)
            if done.returncode == 0:
                results.append(json.loads(done.stdout.splitlines()[-1]))
            else:
                print(f"{name} is left out", file=sys.stderr)
    _write(arguments.table, table(results))
    return 0


def _write(page: Path, text: str) -> None:
    """Puts the table between the marks of the page."""
    before, _, rest = page.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end of table -->")
    page.write_text(f"{before}<!-- table -->\n{text}<!-- end of table -->{after}")


if __name__ == "__main__":
    sys.exit(main())
