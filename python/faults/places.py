"""Where runs of the campaign lie: a folder, a small disk, a bucket behind a proxy; and what can befall them."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from proxy import Proxy

#: A server that starts listens within this time, however slow the machine.
_START_TIMEOUT_S = 60


class Folder:
    """A folder of the file system."""

    name = "folder"
    #: Settings that a Checkpointer needs to reach runs here.
    options: dict[str, str] = {}
    #: The same for the command.
    environment: dict[str, str] = {}
    #: What is added for saves that may fail, so that they do so soon.
    hasty_options: dict[str, str] = {}

    def __init__(self, root: Path) -> None:
        self.root = root

    def url(self, run: str) -> str:
        """Where a run lies."""
        return str(self.root / run)

    def folder(self, run: str) -> Path:
        """Where its files are found."""
        return self.root / run

    def rot(self, run: str, step: int, rng: random.Random) -> str:
        """Harms one file of a committed step, and says how."""
        files = sorted(path for path in (self.folder(run) / f"step-{step:08}").rglob("*") if path.is_file())
        path = rng.choice(files)
        data = bytearray(path.read_bytes())
        harm = rng.choice(["flip", "flip", "flip", "truncate", "remove"])
        if harm == "remove" or not data:
            path.unlink()
            return f"{path.name} removed"
        position = rng.randrange(len(data))
        if harm == "truncate":
            os.truncate(path, position)
            return f"{path.name} truncated to {position} bytes"
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return f"{path.name} has one bit flipped in byte {position}"

    def close(self) -> None:
        """Gives back what was taken."""


class SmallDisk(Folder):
    """A disk that can be filled. Only root may mount one."""

    name = "small disk"
    _FREE_LEN_MIB = 64

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._FREE_LEN_MIB}m", "tmpfs", str(root)]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(done.stderr.strip() or "mount failed")
        self._filler = root / "filler"

    def fill(self, free_bytes: int = 0) -> None:
        """Leaves no more than this free."""
        with open(self._filler, "wb") as file:
            length = _free_bytes(self.root) - free_bytes
            while length > 0:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, length)
                except OSError:  # somebody was faster
                    length //= 2
                else:
                    length = _free_bytes(self.root) - free_bytes

    def empty(self) -> None:
        """Takes the filler away."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.root)], check=True)


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_bsize


class Bucket(Folder):
    """A bucket of `s3s-fs`, which keeps objects as files, with a proxy before it."""

    name = "bucket"
    hasty_options = {"retry_timeout_s": "5", "timeout": "2 seconds"}

    def __init__(self, root: Path, server: Path) -> None:
        super().__init__(root / "bucket")
        self.root.mkdir(parents=True)
        self._server, self._port = server, _free_port()
        self._process = self._start()
        self.proxy = Proxy(self._port)
        self.options = {
            "endpoint": f"http://127.0.0.1:{self.proxy.port}",
            "access_key_id": "AK",
            "secret_access_key": "SK",
            "region": "us-east-1",
            # So that requests which hang are made again; an undisturbed server answers in time on any machine.
            "timeout": "10 seconds",
        }
        self.environment = {
            "AWS_ENDPOINT_URL": self.options["endpoint"],
            "AWS_ACCESS_KEY_ID": "AK",
            "AWS_SECRET_ACCESS_KEY": "SK",
            "AWS_REGION": "us-east-1",
        }

    def url(self, run: str) -> str:
        return f"s3://bucket/{run}"

    def kill(self) -> None:
        """Kills the server."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Starts the server again, with the objects it had."""
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [str(self._server), "--host", "127.0.0.1", "--port", str(self._port)]
        keys = ["--access-key", "AK", "--secret-key", "SK"]
        process = subprocess.Popen([*command, *keys, str(self.root.parent)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in _until(_START_TIMEOUT_S):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    break
        return process

    def close(self) -> None:
        self.proxy.close()
        self.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
    raise TimeoutError(f"nothing happened within {seconds} s")
