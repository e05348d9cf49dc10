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


def named_tensors():
    """A dict of many small tensors."""
    import torch

    return {"model": {f"layers.{index // 10}.part{index % 10}.weight": torch.ones(4, 4) for index in range(TENSORS)}}


def trained_module():
    """A module of many small parameters, and an optimizer with three tensors for each of them."""
    import torch

    module = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(TENSORS // 2))
    optimizer = torch.optim.AdamW(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {"model": module, "optim": optimizer}


def planning(directory, state):
    """Milliseconds of a repeated save of small tensors: all of it, and the part that the engine plans for."""
    import cairn

    checkpointer = cairn.Checkpointer(directory)
    calls, plans = [], []
    for step in range(9):
        start = time.perf_counter()
        saving = checkpointer.save(step, state)
        calls.append(1e3 * (time.perf_counter() - start))
        plans.append(1e3 * saving.wait().planning_seconds)
    shutil.rmtree(directory)
    return median(calls[2:]), median(plans[2:])


def main():
    directory, _, _ = arguments()
    value("import of cairn", import_ms(), "ms", at_most=50.0)
    size = wheel_mb()
    if size is not None:
        value("wheel", size, "MB", at_most=15.0)
    for name, state, count in [("in a dict", named_tensors(), TENSORS), ("of AdamW", trained_module(), 4 * TENSORS)]:
        call, plan = planning(directory / "planning", state)
        limit = 5.0 * count / TENSORS
        value(f"plan of a repeated save, {count:,} tensors {name}", plan, "ms", at_most=limit)
        value(f"whole call of a repeated save, {count:,} small tensors {name}", call, "ms", at_most=limit)


if __name__ == "__main__":
    main()
