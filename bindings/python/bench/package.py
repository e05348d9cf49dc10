"""The package itself: how long its import takes, how large its wheel is, what a repeated save plans."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import median, value

from common import arguments

TENSORS = 10_000


def import_ms():
    """Milliseconds of `import cairn` in a fresh interpreter, beyond the interpreter's own start."""
    script = "import time; start = time.perf_counter(); import cairn; print(1e3 * (time.perf_counter() - start))"
    runs = [subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True) for _ in range(7)]
    return median([float(run.stdout) for run in runs])


def wheel_mb():
    """Megabytes of the newest wheel in `target/wheels`, if there is one."""
    wheels = sorted((Path(__file__).resolve().parents[3] / "target/wheels").glob("*.whl"))
    return wheels[-1].stat().st_size / 1e6 if wheels else None


def planning(directory):
    """Milliseconds of a repeated save of many small tensors: all of it, and the part the engine plans for."""
    import cairn
    import torch

    state = {f"layers.{index // 10}.part{index % 10}.weight": torch.ones(4, 4) for index in range(TENSORS)}
    checkpointer = cairn.Checkpointer(directory)
    calls, plans = [], []
    for step in range(7):
        start = time.perf_counter()
        saving = checkpointer.save(step, {"model": state})
        calls.append(1e3 * (time.perf_counter() - start))
        plans.append(1e3 * saving.wait().planning_seconds)
    return median(calls[1:]), median(plans[1:])


def main():
    directory, _, _ = arguments()
    value("import of cairn", import_ms(), "ms", at_most=50.0)
    size = wheel_mb()
    if size is not None:
        value("wheel", size, "MB", at_most=15.0)
    call, plan = planning(directory / "planning")
    value(f"plan of a repeated save, {TENSORS:,} tensors", plan, "ms", at_most=5.0)
    value(f"whole call of a repeated save, {TENSORS:,} small tensors", call, "ms")
    shutil.rmtree(directory / "planning")


if __name__ == "__main__":
    main()
