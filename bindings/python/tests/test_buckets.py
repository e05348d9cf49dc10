"""Runs in a bucket: saved, opened and loaded by URL and storage options."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import cairn
from bucket import serve


def test_a_run_in_a_bucket_is_saved_opened_and_loaded() -> None:
    state = {"w": np.arange(100_000, dtype=np.float32), "step": 7}
    with serve() as (options, objects):
        with cairn.Checkpointer("s3://bucket/runs/a", storage_options=options) as run:
            run.save(7, state).wait()
            assert run.steps() == [7]
            with pytest.raises(cairn.Error):
                run.save(7, state).wait()
        assert "runs/a/step-00000007/COMMIT" in objects
        found = cairn.open("s3://bucket/runs/a", storage_options=options)
        np.testing.assert_array_equal(found["w"][10:20], state["w"][10:20])
        again = {"w": np.zeros(100_000, dtype=np.float32), "step": 0}
        cairn.load("s3://bucket/runs/a", again, storage_options=options)
        np.testing.assert_array_equal(again["w"], state["w"])
        assert again["step"] == 7


def test_settings_that_the_store_does_not_have_are_refused(tmp_path: object) -> None:
    with pytest.raises(cairn.Error, match="colour"):
        cairn.Checkpointer("s3://bucket/run", storage_options={"colour": "blue"}).steps()
    with pytest.raises(cairn.Error, match="region"):
        cairn.open(str(tmp_path), storage_options={"region": "here"})


def test_secrets_are_in_no_error() -> None:
    with serve() as (options, _):
        endpoint = options["endpoint"]
    # Nobody listens there any more.
    options = {**options, "endpoint": endpoint, "max_retries": "0"}
    with pytest.raises(cairn.Error) as error:
        cairn.Checkpointer("s3://bucket/run", storage_options=options).steps()
    assert "cannot be reached" in str(error.value)
    assert "hush" not in str(error.value) + repr(error.value)


def test_a_forked_process_reads_what_its_parent_opened() -> None:
    """As the workers of a data loader do. The child reads before and after its parent does."""
    text = """
        import os, sys
        import numpy as np
        import cairn
        from bucket import serve

        def forked(body):
            child = os.fork()
            if child == 0:
                os._exit(0 if body() else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        with serve() as (options, _):
            with cairn.Checkpointer("s3://bucket/run", storage_options=options) as run:
                run.save(1, {"w": np.arange(1000.0)}).wait()
                opened = cairn.open("s3://bucket/run", storage_options=options)
                lazy, fresh = opened["w"], cairn.open("s3://bucket/run", storage_options=options)
                assert lazy[3] == 3
                print(forked(lambda: lazy[5] == 5 and fresh["w"][6] == 6 and run.steps() == [1]))
                # A worker that starts workers.
                print(forked(lambda: lazy[7] == 7 and forked(lambda: lazy[8] == 8) == 0))
                assert lazy[9] == 9
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert (found.returncode, found.stdout.split()) == (0, ["0", "0"]), found.stderr
