"""A training state in a bucket: Cairn, the best plain client (obstore), and s3fs under torch DCP, against one S3 server on loopback.

The server is `s3s-fs`, whose program the variable `S3S_FS` names. Settings of the peers are tried first, and the best are taken.
"""

import concurrent.futures
import multiprocessing
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import cairn
import obstore
import torch
import torch.distributed.checkpoint as dcp
from harness import median, paired, ratio, rotated, seconds, value
from obstore.store import S3Store

from common import arguments, fill, state_bytes, tensors

try:
    from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
except ImportError:
    # Its name in older versions.
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

#: s3fs under DCP takes minutes for a gigabyte.
ROUNDS = 3
MIB = 1 << 20
BUCKET = "bench"
ACCESS_KEY, SECRET_KEY, REGION = "AK", "SK", "us-east-1"

#: Bytes of a part or range, and how many are on their way at a time.
OBSTORE_SETTINGS = [(8 * MIB, 8), (8 * MIB, 16), (16 * MIB, 8), (32 * MIB, 8), (64 * MIB, 4)]
#: Threads of a DCP writer.
DCP_SETTINGS = [1, 4]

#: What a remote save may take beyond the image of the file: as many parts as are on their way at a time.
MOST_PARTS_BYTES = 8 * 8 * MIB


@contextmanager
def server(folder):
    """A server whose one bucket is empty; its address."""
    (folder / BUCKET).mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [os.environ["S3S_FS"], "--host", "127.0.0.1", "--port", str(port)]
    command += ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, "the server has ended"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def storage_options(endpoint):
    """What opens the bucket, for Cairn and for obstore."""
    return {"endpoint": endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": REGION}


def filled(specification):
    """The state, with bytes that can be told apart."""
    return {name: fill(shape, dtype, seed) for seed, (name, (shape, dtype)) in enumerate(specification.items())}


class Cairn:
    """Saves and loads the state by its address."""

    def __init__(self, endpoint, state):
        self.state, self.step = state, 0
        self.checkpointer = cairn.Checkpointer(f"s3://{BUCKET}/cairn", storage_options=storage_options(endpoint))

    def save(self):
        self.step += 1
        return seconds(lambda: self.checkpointer.save(self.step, self.state).wait())

    def load(self):
        """Into memory that is there, and compared with what was saved."""
        target = {name: torch.zeros_like(tensor) for name, tensor in self.state.items()}
        elapsed = seconds(lambda: self.checkpointer.load(into=target))
        check(self.state, target)
        return elapsed


class Obstore:
    """Puts and gets the same bytes as one object, in parts and ranges."""

    def __init__(self, endpoint, size_bytes):
        self.store = S3Store(BUCKET, config=storage_options(endpoint), client_options={"allow_http": True, "timeout": "120s"})
        self.bytes = os.urandom(MIB) * -(-size_bytes // MIB)
        self.put_settings = self.get_settings = OBSTORE_SETTINGS[0]

    def tune(self):
        """Finds the settings that are fastest here."""

        def timed(attribute, work, settings):
            setattr(self, attribute, settings)
            return min(work() for _ in range(2))

        self.put_settings = min(OBSTORE_SETTINGS, key=lambda settings: timed("put_settings", self.save, settings))
        self.get_settings = min(OBSTORE_SETTINGS, key=lambda settings: timed("get_settings", self.load, settings))

    def save(self):
        part_bytes, count = self.put_settings
        return seconds(lambda: obstore.put(self.store, "plain", self.bytes, chunk_size=part_bytes, max_concurrency=count))

    def load(self):
        """Ranges, as the client hands them over: into no memory of the caller's."""
        range_bytes, count = self.get_settings
        starts = range(0, len(self.bytes), range_bytes)

        def get(start):
            end = min(start + range_bytes, len(self.bytes))
            return obstore.get_range(self.store, "plain", start=start, end=end)

        with concurrent.futures.ThreadPoolExecutor(count) as threads:
            return seconds(lambda: list(threads.map(get, starts)))


class Dcp:
    """torch DCP over fsspec and s3fs."""

    def __init__(self, endpoint, state):
        self.state, self.threads = state, DCP_SETTINGS[0]
        self.url = f"s3://{BUCKET}/dcp"
        self.options = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": endpoint, "client_kwargs": {"region_name": REGION}}

    def tune(self):
        """Finds the number of threads that is fastest here."""

        def timed(threads):
            self.threads = threads
            return self.save()

        self.threads = min(DCP_SETTINGS, key=timed)

    def save(self):
        writer = FsspecWriter(self.url, sync_files=False, thread_count=self.threads, **self.options)
        return seconds(lambda: dcp.save(self.state, storage_writer=writer, no_dist=True))

    def load(self):
        target = {name: torch.zeros_like(tensor) for name, tensor in self.state.items()}
        reader = FsspecReader(self.url, **self.options)
        elapsed = seconds(lambda: dcp.load(target, storage_reader=reader, no_dist=True))
        check(self.state, target)
        return elapsed


def check(state, target):
    """Fails unless what was loaded is what was saved."""
    for name, tensor in state.items():
        assert torch.equal(tensor, target[name]), name


def memory(label):
    """Bytes of this process's memory, as the system counts them: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(label))


def extra_bytes(endpoint, size_bytes):
    """The most memory that a process's first save of the state takes beyond the state and the image of its file."""
    state = filled(tensors(size_bytes))
    options = storage_options(endpoint)
    cairn.Checkpointer(f"s3://{BUCKET}/small", storage_options=options).save(0, {"x": torch.zeros(1)}).wait()
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS:")
    cairn.Checkpointer(f"s3://{BUCKET}/memory", storage_options=options).save(0, state).wait()
    return memory("VmHWM:") - before - state_bytes(tensors(size_bytes))


def measure_memory(endpoint, size_bytes):
    """In a process of its own, which nothing else has used."""
    processes = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=processes) as pool:
        extra = pool.submit(extra_bytes, endpoint, size_bytes).result()
    value("save to S3: memory beyond state and image", extra / 1e6, "MB", at_most=MOST_PARTS_BYTES / 1e6)


def measure(folder, endpoint, size_bytes):
    """All contenders in the same rounds, each of which saves and then loads."""
    specification = tensors(size_bytes)
    total = state_bytes(specification)
    state = filled(specification)
    contenders = {"cairn": Cairn(endpoint, state), "obstore": Obstore(endpoint, total), "dcp": Dcp(endpoint, state)}
    # As it comes, it writes with one thread. Loads have no such setting.
    untuned = Dcp(endpoint, state)

    def empty(name):
        shutil.rmtree(folder / BUCKET)
        (folder / BUCKET).mkdir()

    for name in ["obstore", "dcp"]:
        empty(name)
        contenders[name].tune()
    loads = {name: [] for name in contenders}

    def round_of(name):
        saved = contenders[name].save()
        loads[name].append(contenders[name].load())
        return saved

    rounds = {name: lambda name=name: round_of(name) for name in contenders}
    saves = rotated(rounds | {"untuned": untuned.save}, ROUNDS, empty)
    # The first round warms up.
    loads = {name: timings[1:] for name, timings in loads.items()}
    for phase, direction, timings in [("save to S3", "write", saves), ("load from S3", "read", loads)]:
        settings = contenders["obstore"].put_settings if direction == "write" else contenders["obstore"].get_settings
        plain = f"obstore, {settings[1]} × {settings[0] // MIB} MiB"
        paired(f"{phase}, of {plain}", direction, total, timings["cairn"], timings["obstore"], at_least=0.85)
        value(f"{phase}, over s3fs + DCP", ratio(timings["dcp"], timings["cairn"]), "×", at_least=3.0)
        # What a server does not give to the best plain client, nobody gets.
        value(f"{phase}: obstore over s3fs + DCP", ratio(timings["dcp"], timings["obstore"]), "×")
        value(f"{phase}: what s3fs + DCP does, {contenders['dcp'].threads} threads", total / 1e9 / median(timings["dcp"]), "GB/s")
    value("save to S3, over s3fs + DCP with its own settings (1 thread)", ratio(saves["untuned"], saves["cairn"]), "×")


def main():
    directory, size_bytes, _ = arguments()
    folder = directory / "stores"
    shutil.rmtree(folder, ignore_errors=True)
    with server(folder) as endpoint:
        measure(folder, endpoint, size_bytes)
        measure_memory(endpoint, size_bytes)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
