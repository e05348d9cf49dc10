"""What happens to a save when its process ends, forks, is interrupted, or its disk refuses.

Every test runs a small program in an interpreter of its own. It finds the run's folder in ``sys.argv[1]`` and a state that
takes a while to save in ``big``; ``say(word)`` tells the test how far it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cairn

LEN_MIB = 192
PRELUDE = f"""
import os, signal, sys, threading, time
import numpy as np
import cairn

def say(word):
    print(word, flush=True)

# Whoever runs the tests in the background ignores interrupts, and so would this.
signal.signal(signal.SIGINT, signal.default_int_handler)
run = cairn.Checkpointer(sys.argv[1])
big = {{"a": np.ones({LEN_MIB} << 20, np.uint8)}}
"""
TIMEOUT_S = 60


def start(folder: Path, program: str) -> subprocess.Popen[str]:
    text = PRELUDE + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors; a program that hangs fails the test."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"the program hangs: {process.communicate()}") from None
    return process.returncode, out, err


def program(folder: Path, text: str) -> tuple[int, str, str]:
    return finish(start(folder, text))


def assert_intact(folder: Path, *steps: int) -> None:
    run = cairn.Checkpointer(folder)
    assert run.steps() == list(steps)
    for step in steps:
        run.verify(step)


def first_step(folder: Path) -> None:
    cairn.Checkpointer(folder).save(1, {"a": np.ones(10, np.uint8)}, blocking=True)


# The end of a process.


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1), ("del run", 0), ("threading.Thread(target=time.sleep, args=(0.1,)).start()", 0)],
    ids=["end", "sys.exit", "exception", "dropped", "thread"],
)
def test_a_save_nobody_waited_for_is_finished_at_the_end(tmp_path: Path, ending: str, code: int) -> None:
    returned, _, err = program(tmp_path, f"assert not run.save(2, big).done()\n{ending}")
    assert returned == code, err
    assert_intact(tmp_path, 2)


def test_an_error_nobody_looked_at_is_told_at_the_end(tmp_path: Path) -> None:
    Path(tmp_path, "step-00000002").write_text("in the way")
    code, _, err = program(tmp_path, "run.save(2, {'a': np.zeros(3)})")
    assert code == 0
    assert str(tmp_path) in err and "step-00000002" in err


@pytest.mark.parametrize("ending", ["os._exit(9)", "os.kill(os.getpid(), signal.SIGKILL)", "os.abort()"])
def test_a_sudden_end_leaves_the_old_step_intact(tmp_path: Path, ending: str) -> None:
    first_step(tmp_path)
    code, _, _ = program(tmp_path, f"assert not run.save(2, big).done()\n{ending}")
    assert code != 0
    assert_intact(tmp_path, 1)
    run = cairn.Checkpointer(tmp_path)
    assert run.load(into={"a": np.zeros(10, np.uint8)}).step == 1
    run.save(2, {"a": np.ones(10, np.uint8)}, blocking=True)
    assert_intact(tmp_path, 1, 2)


def test_a_process_killed_at_any_moment_leaves_whole_steps_only(tmp_path: Path) -> None:
    first_step(tmp_path)
    process = start(
        tmp_path,
        """
        say("ready")
        for step in range(2, 1000):
            run.save(step, {"a": np.full(1 << 20, step)})
        """,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.kill()
    finish(process)
    run = cairn.Checkpointer(tmp_path)
    assert len(run.steps()) > 1
    for step in run.steps():
        assert (run.open(step)["a"][...] == step).all()


def test_an_interrupt_ends_the_waiting_at_once_but_not_the_save(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
        saving = run.save(2, big)
        try:
            say("waiting")
            saving.wait()
            say("not interrupted")
        except KeyboardInterrupt:
            say(f"interrupted {saving.done()}")
        """,
    )
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (0, "interrupted False\n"), err
    assert_intact(tmp_path, 2)


def test_an_interrupted_wait_of_the_checkpointer_is_taken_up_at_the_end(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
        saving = run.save(2, big)
        say("waiting")
        run.wait()
        """,
    )
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code in (1, -signal.SIGINT) and "KeyboardInterrupt" in err
    assert_intact(tmp_path, 2)


# Forks.


def test_a_fork_is_told_that_the_checkpointer_is_not_its_own(tmp_path: Path) -> None:
    code, out, err = program(
        tmp_path,
        """
        saving = run.save(2, big)
        child = os.fork()
        if child == 0:
            for use in (saving.wait, run.wait, lambda: run.save(3, {})):
                try:
                    use()
                except cairn.StateError as error:
                    say("fork of that process" in str(error))
            run.close()
            del saving, run
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        say(os.waitstatus_to_exitcode(status))
        """,
    )
    assert (code, out.split()) == (0, ["True", "True", "True", "7"]), err
    assert_intact(tmp_path, 2)


def test_a_fork_can_read_and_make_a_checkpointer_of_its_own(tmp_path: Path) -> None:
    first_step(tmp_path)
    code, out, err = program(
        tmp_path,
        """
        run.save(2, big)
        child = os.fork()
        if child == 0:
            own = cairn.Checkpointer(sys.argv[1])
            say(own.open(1)["a"][:3].tolist())
            own.save(3, {"a": np.zeros(3)}, blocking=True)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        say(status)
        """,
    )
    assert (code, out) == (0, "[1, 1, 1]\n0\n"), err
    assert_intact(tmp_path, 1, 2, 3)


def test_worker_processes_of_every_kind_come_and_go_during_a_save(tmp_path: Path) -> None:
    text = """
        import multiprocessing
        saving = run.save(2, big)
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            say(sum(pool.map(abs, range(-100, 0))))
        worker = context.Process(target=lambda: sys.exit(run.url == ""))
        worker.start()
        worker.join()
        say(worker.exitcode)
        """
    code, out, err = program(tmp_path, text)
    assert (code, out.split()) == (0, ["5050", "0"]), err
    assert_intact(tmp_path, 2)


def test_a_checkpointer_cannot_be_pickled_into_another_process(tmp_path: Path) -> None:
    code, out, err = program(
        tmp_path,
        """
        import pickle
        run.save(2, {"a": np.zeros(3)}, blocking=True)
        try:
            pickle.dumps(run)
        except TypeError as error:
            say("TypeError")
        """,
    )
    assert (code, out) == (0, "TypeError\n"), err


# The interpreter's lock.

COUNTING = """
    longest, stop = [0.0], threading.Event()

    def count():
        '''Notes the longest time this thread was not let run.'''
        before = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            longest[0] = max(longest[0], now - before)
            before = now

    def share(work):
        '''The longest pause of the other thread, as a share of the time the work took.'''
        longest[0] = 0.0
        stop.clear()
        thread = threading.Thread(target=count)
        thread.start()
        begin = time.perf_counter()
        work()
        took = time.perf_counter() - begin
        stop.set()
        thread.join()
        return longest[0] / took
    """


def test_other_threads_run_while_a_large_state_is_saved_and_loaded(tmp_path: Path) -> None:
    text = """
        say(share(lambda: run.save(2, big)))
        run.wait()
        say(share(lambda: run.load(2, into=big)))
        say(share(lambda: run.verify(2)))
        say(share(lambda: run.open(2)["a"][...]))
        say(share(lambda: run.save(3, big, blocking=True)))
        """
    code, out, err = program(tmp_path, textwrap.dedent(COUNTING) + textwrap.dedent(text))
    assert code == 0, err
    shares = [float(line) for line in out.split()]
    assert max(shares) < 0.8, shares


def test_a_kept_lock_would_be_noticed(tmp_path: Path) -> None:
    code, out, err = program(tmp_path, textwrap.dedent(COUNTING) + "say(share(lambda: sum(range(10_000_000))))")
    assert code == 0, err
    assert float(out) > 0.8


# Disks that refuse.


def test_a_folder_that_cannot_be_written_to_is_a_store_error(tmp_path: Path) -> None:
    Path(tmp_path, "file").write_text("not a folder")
    run = cairn.Checkpointer(tmp_path / "file" / "run")
    with pytest.raises(cairn.StoreError):
        run.save(1, {"a": np.zeros(3)}, blocking=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB; skips where this process may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("this process may not mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_commits_nothing_and_the_old_step_stays(small_disk: Path) -> None:
    run = cairn.Checkpointer(small_disk / "run")
    run.save(1, {"a": np.ones(1 << 20, np.uint8)}, blocking=True)
    with pytest.raises(cairn.StoreError, match="(?i)space"):
        run.save(2, {"a": np.ones(16 << 20, np.uint8)}, blocking=True)
    assert_intact(small_disk / "run", 1)
    run.save(3, {"a": np.ones(1 << 20, np.uint8)}, blocking=True)
    assert_intact(small_disk / "run", 1, 3)


def test_a_read_only_disk_is_a_store_error(small_disk: Path) -> None:
    run = cairn.Checkpointer(small_disk / "run")
    run.save(1, {"a": np.ones(9, np.uint8)}, blocking=True)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(cairn.StoreError, match="(?i)read-only"):
        run.save(2, {"a": np.ones(9, np.uint8)}, blocking=True)
    assert_intact(small_disk / "run", 1)
    assert os.listdir(small_disk / "run") == ["step-00000001"]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group whose processes may have 900 MiB together."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (first, "memory.limit_in_bytes") if first.exists() else (second, "memory.max")
    folder = root / f"cairn-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(900 << 20))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    yield folder
    folder.rmdir()


def test_a_save_with_no_memory_left_for_its_image_goes_through_a_ring_and_says_so(tmp_path: Path, small_group: Path) -> None:
    code, out, err = program(
        tmp_path,
        f"""
        open("{small_group}/cgroup.procs", "w").write(str(os.getpid()))
        huge = {{"a": np.full(700 << 20, 7, np.uint8)}}
        report = run.save(1, huge).wait(progress=False)
        print(report.capture, *report.notes)
        """,
    )
    assert code == 0, err
    assert "used as a ring" in out
    assert (cairn.open(tmp_path)["a"][...] == 7).all()
