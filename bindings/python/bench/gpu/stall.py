"""What saving costs a training loop on one GPU: ours in its three modes, and DCP's best settings beside it.

Run: ``python bench/gpu/stall.py FOLDER [--saves 20] [--only image,scratch,ring,ema,dcp]``. Prints one line of JSON for each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import torch

import cairn
from training import Training

GB = 1e9


def report(what: str, **numbers: Any) -> None:
    """Prints a measurement."""
    rounded = {key: round(value, 5) if isinstance(value, float) else value for key, value in numbers.items()}
    print(json.dumps({"what": what, **rounded}), flush=True)


def quantile(values: list[float], share: float) -> float:
    """The value that ``share`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def host_bytes(field: str) -> int:
    """A line of the process's memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def direct_ceiling(folder: Path, len_bytes: int) -> float:
    """The bytes a second that the disk takes: two threads, large direct writes, one fsync at the end."""
    chunk = 8 << 20
    buffer = torch.empty(chunk + 4096, dtype=torch.uint8).random_().numpy()
    start = -buffer.ctypes.data % 4096
    view = memoryview(buffer)[start : start + chunk]
    path = folder / "ceiling"
    flags = os.O_CREAT | os.O_WRONLY | os.O_DIRECT
    file = os.open(path, flags)
    os.posix_fallocate(file, 0, len_bytes // chunk * chunk)
    begun = time.perf_counter()

    def write(first: int) -> None:
        for index in range(first, len_bytes // chunk, 2):
            os.pwrite(file, view, index * chunk)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.fsync(file)
    seconds = time.perf_counter() - begun
    os.close(file)
    path.unlink()
    return len_bytes / seconds


def lanes(timeline: dict[str, Any]) -> dict[str, Any]:
    """For each lane, its first and last moment in seconds, and its bytes a second while anything was on it."""
    found: dict[str, Any] = {}
    for lane, spans in timeline["spans"].items():
        begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
        total = sum(span[2] for span in spans)
        found[lane] = [round(begin / 1e9, 4), round(end / 1e9, 4), round(total / max(end - begin, 1), 2)]
    return found


def usual_step(training: Training) -> float:
    """The median of some steps."""
    training.steps(3)
    return statistics.median(training.steps(15))


def measure(name: str, training: Training, folder: Path, saves: int, **options: Any) -> None:
    """Saves again and again while training, and looks at every step."""
    shutil.rmtree(folder, ignore_errors=True)
    base = usual_step(training)
    free_before, reserved_before = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    resident = host_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run = cairn.Checkpointer(folder, **{"keep": cairn.Keep(last=1), **options})
    begun = time.perf_counter()
    run.prepare(training.state, blocking=True)
    preparing = time.perf_counter() - begun
    ceilings = [direct_ceiling(folder.parent, 12 << 30)]
    calls, stalls, windows, durable, slower, nothing = [], [], [], [], [], []
    for number in range(saves + 1):
        # The clock of a GPU drifts: what is usual is asked anew around every save.
        base = statistics.median(training.steps(3 if training.accumulate > 1 else 9))
        begun = time.perf_counter()
        saving = run.save(number, training.state)
        calls.append(time.perf_counter() - begun)
        steps = []
        while not saving.done():
            steps.append(training.step())
        steps += training.steps(1)
        result = saving.wait(progress=False)
        base = statistics.median([base, *training.steps(2 if training.accumulate > 1 else 9)])
        durable.append(result.durable_seconds)
        if number:
            # The copy overlaps with the first steps; what comes later is only written.
            copied = steps[: max(2, int(1 / base))]
            stalls.append(calls[-1] + sum(step - base for step in copied))
            windows.append(calls[-1] + sum(step - base for step in steps))
            slower.append(statistics.median(steps[len(copied) :] or steps) / base - 1)
            # The same sum where nothing is saved: what of a stall is only that steps differ.
            nothing.append(sum(step - base for step in training.steps(len(copied))))
    used = free_before - torch.cuda.mem_get_info()[0] - (torch.cuda.memory_reserved() - reserved_before)
    peak = host_bytes("VmHWM") - resident
    after = usual_step(training)
    ceilings.append(direct_ceiling(folder.parent, 12 << 30))
    ceiling = statistics.mean(ceilings)
    report(
        name,
        step_s=base,
        step_after_s=after,
        prepare_s=preparing,
        first_call_ms=calls[0] * 1e3,
        call_ms_p50=quantile(calls[1:], 0.5) * 1e3,
        stall_ms_p50=quantile(stalls, 0.5) * 1e3,
        stall_ms_p99=quantile(stalls, 0.99) * 1e3,
        no_save_ms_p50=quantile(nothing, 0.5) * 1e3,
        no_save_ms_p99=quantile(nothing, 0.99) * 1e3,
        window_extra_ms_p50=quantile(windows, 0.5) * 1e3,
        slowdown_while_writing=statistics.median(slower),
        durable_s_p50=quantile(durable[1:], 0.5),
        bytes=result.len_bytes,
        disk_gbps=[round(one / GB, 3) for one in ceilings],
        durable_over_ceiling=quantile(durable[1:], 0.5) / (result.len_bytes / ceiling),
        device_mb=used / 1e6,
        host_peak_gb=peak / GB,
        capture=result.capture,
        headline=result.headline,
        notes=list(result.notes),
    )
    report(f"{name}, every save", stall_ms=[round(stall * 1e3, 2) for stall in stalls], durable_s=[round(one, 2) for one in durable])
    report(f"{name}, lanes of the last save", **lanes(result.timeline))
    run.close()
    del run
    shutil.rmtree(folder)


def memory_bandwidth(threads: int) -> float:
    """The bytes a second that so many threads move through memory, reading two arrays and writing one."""
    len_bytes = 1 << 30
    one, other, out = (torch.empty(len_bytes // 4) for _ in range(3))
    one.fill_(1), other.fill_(2), out.fill_(3)
    torch.set_num_threads(threads)
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        torch.add(one, other, out=out)
        best = max(best, 3 * len_bytes / (time.perf_counter() - begun))
    return best


def measure_ema(training: Training, folder: Path, steps: int) -> None:
    """Averages the master weights after every step."""
    shutil.rmtree(folder, ignore_errors=True)
    ema = cairn.Ema(decay=0.9999, include="model.*", source="optim.state.*.master")
    run = cairn.Checkpointer(folder, ema=ema)
    usual_step(training)
    run.average(0, training.state)
    training.steps(5)
    without, with_ema, calls = [], [], []
    for step in range(1, steps + 1):
        without.append(training.step())
        begun = time.perf_counter()
        run.average(step, training.state)
        calls.append(time.perf_counter() - begun)
        with_ema.append(calls[-1] + training.step())
    native: Any = run._averages.native  # type: ignore[union-attr]
    native.wait()
    timeline = json.loads(native.timeline())
    spans = timeline["spans"]["average"]
    seconds = (max(span[1] for span in spans) - min(span[0] for span in spans)) / 1e9
    source = sum(span[2] for span in spans)
    # Of each fp32 weight 4 bytes are read; of its average 8 are read and 8 are written.
    traffic, ceiling = source * 5 / seconds, memory_bandwidth(4)
    report(
        "EMA of all parameters every step",
        step_s=statistics.median(without),
        step_with_s=statistics.median(with_ema),
        extra_share=statistics.median(with_ema) / statistics.median(without) - 1,
        call_ms_p50=statistics.median(calls) * 1e3,
        update_s=seconds,
        traffic_gbps=traffic / GB,
        memory_gbps=ceiling / GB,
        share_of_memory=traffic / ceiling,
        lanes=lanes(timeline),
    )
    run.close()


def measure_dcp(training: Training, folder: Path, saves: int) -> None:
    """The same with ``dcp.async_save`` and a pinned, asynchronous stager."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
    base = usual_step(training)
    best = StagingOptions(use_pinned_memory=True, use_shared_memory=False, use_async_staging=True, use_non_blocking_copy=True)
    stager = DefaultStager(best)
    for number in range(saves + 1):
        begun = time.perf_counter()
        handle: Any = dcp.async_save(training.tensors(), checkpoint_id=f"{folder}/{number}", async_stager=stager)
        # The state may not change before it is staged, and nothing but the caller sees to that.
        handle.staging_completion.exception()
        staged = time.perf_counter() - begun
        stall = staged
        while not handle.upload_completion.done():
            stall += training.step() - base
        failure = handle.upload_completion.exception()
        done = time.perf_counter() - begun
        name = f"dcp.async_save, pinned stager, save {number}"
        report(name, step_s=base, staged_s=staged, stall_s=stall, done_s=done, failure=repr(failure) if failure else None)
        if failure:
            stager = DefaultStager(best)
        shutil.rmtree(f"{folder}/{number}", ignore_errors=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--dcp-saves", type=int, default=2)
    parser.add_argument("--only", default="image,scratch,ring,ema,dcp")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    training = Training(accumulate=6)
    training.steps(2)
    folder = arguments.folder / "run"
    if "image" in wanted:
        measure("host image", training, folder, arguments.saves, keep=None if arguments.saves <= 2 else cairn.Keep(last=1))
    if "ring" in wanted:
        measure("ring of 2 GB", training, folder, 2, staging_bytes=2_000_000_000)
    if "scratch" in wanted:
        training.accumulate = 1
        measure("device scratch", training, folder, arguments.saves, scratch_bytes=14 << 30)
        training.accumulate = 6
    if "ema" in wanted:
        measure_ema(training, folder, 20)
    if "dcp" in wanted:
        measure_dcp(training, arguments.folder, arguments.dcp_saves)


if __name__ == "__main__":
    main()
