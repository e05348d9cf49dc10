"""Runs in a bucket: saved, opened and loaded by URL and storage options."""

from __future__ import annotations

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
