"""A mixed-precision training state saved and loaded by one rank, beside Paddle's own distributed checkpoint.

Paddle's save returns with the data in the page cache; ours is measured until it is durable, and until it returns.
"""

import shutil
import warnings

warnings.simplefilter("ignore")

import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402
from harness import ROUNDS, median, ratio, rotated, seconds, value  # noqa: E402

import cairn  # noqa: E402
from common import arguments, drop_cache, report  # noqa: E402

SIDE = 2048
KINDS = {"param": "bfloat16", "master": "float32", "m": "float32", "v": "float32"}


def state(size_bytes, fill):
    """Layers of four square matrices with what AdamW keeps for each."""
    layers = max(1, size_bytes // (4 * SIDE * SIDE * 14))
    return {
        f"layers.{layer}.{name}.{kind}": paddle.full([SIDE, SIDE], fill + layer, dtype=dtype)
        for layer in range(layers)
        for name in ("q", "k", "up", "down")
        for kind, dtype in KINDS.items()
    }


def saves(directory, tensors):
    """Each saver's seconds to save into an empty folder. Ours is one run's, as in training: its memory is warm after the first."""
    stalls = []
    checkpointer = cairn.Checkpointer(directory / "cairn")

    def cairn_save():
        def save():
            saving = checkpointer.save(len(stalls) + 1, tensors)
            saving.wait()
            stalls.append(saving.stall_seconds)

        return seconds(save)

    def paddle_save():
        return seconds(lambda: dist.save_state_dict(tensors, str(directory / "paddle")))

    def empty(name):
        shutil.rmtree(directory / name, ignore_errors=True)

    timings = rotated({"cairn": cairn_save, "paddle": paddle_save}, ROUNDS, empty)
    return timings, median(stalls[1:])


def loads(directory, size_bytes):
    """Each loader's seconds to fill a state from files that are not in memory."""
    into = state(size_bytes, 0.0)
    loaders = {
        "cairn": lambda: cairn.Checkpointer(directory / "cairn").load(into=into),
        "paddle": lambda: dist.load_state_dict(into, str(directory / "paddle")),
    }

    def timed(name):
        def load():
            for tensor in into.values():
                tensor.zero_()
            elapsed = seconds(loaders[name])
            assert float(into["layers.0.q.master"][-1, -1]) == 1.5, name
            return elapsed

        return load

    return rotated({name: timed(name) for name in loaders}, ROUNDS, lambda name: drop_cache(directory / name))


def main():
    directory, size_bytes, _ = arguments()
    directory = directory / "paddle_state"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tensors = state(size_bytes, 1.5)
    saved_bytes = sum(tensor.size * tensor.element_size() for tensor in tensors.values())
    saving, stall = saves(directory, tensors)
    loading = loads(directory, size_bytes)
    shutil.rmtree(directory)
    for phase, direction, timings in [("save", "write", saving), ("load", "read", loading)]:
        report("cairn for Python", f"paddle state: {phase}", direction, saved_bytes, timings["cairn"])
        report("paddle", f"paddle state: {phase}", direction, saved_bytes, timings["paddle"])
    value("paddle state: training stands still", stall, "s")
    value("paddle state: save, times faster", ratio(saving["paddle"], saving["cairn"]), "×", at_least=5)
    value("paddle state: load, times faster", ratio(loading["paddle"], loading["cairn"]), "×", at_least=2)


if __name__ == "__main__":
    main()
