"""Stores of obstore in the place of an address: what they say is handed on, and what cannot be is refused by name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store

import cairn
from bucket import serve
from cairn._place import locate

PLAIN: Any = {"allow_http": True}


def test_a_run_in_a_store_of_obstore_is_saved_opened_and_loaded() -> None:
    state = {"w": np.arange(1000, dtype=np.float32), "step": 7}
    with serve() as (options, objects):
        store = S3Store("bucket", prefix="runs/a", config=options, client_options=PLAIN)
        with cairn.Checkpointer(store) as run:
            run.save(7, state).wait()
        assert "runs/a/step-00000007/COMMIT" in objects
        assert obstore.head(store, "step-00000007/COMMIT")["size"] > 0
        np.testing.assert_array_equal(cairn.open(store)["w"][10:20], state["w"][10:20])
        again = {"w": np.zeros(1000, dtype=np.float32), "step": 0}
        cairn.load(store, again)
        np.testing.assert_array_equal(again["w"], state["w"])


def test_a_folder_of_obstore_is_that_folder(tmp_path: Path) -> None:
    state = {"w": np.arange(10)}
    cairn.Checkpointer(LocalStore(tmp_path)).save(1, state).wait()
    assert cairn.Checkpointer(tmp_path).steps() == [1]


def test_a_store_becomes_an_address_and_settings() -> None:
    keys: Any = {"aws_access_key_id": "AK", "aws_secret_access_key": "SK", "region": "eu-west-1"}
    tries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=2.5)}
    store = S3Store("bucket", prefix="a/b", config=keys, client_options={"timeout": "9s"}, retry_config=tries)
    assert locate(store) == (
        "s3://bucket/a/b",
        {
            "access_key_id": "AK",
            "secret_access_key": "SK",
            "region": "eu-west-1",
            "timeout": "9s",
            "max_retries": "3",
            "retry_timeout_s": "3",
        },
    )
    assert locate(S3Store.from_url("s3://bucket/deep/run", config=keys))[0] == "s3://bucket/deep/run"
    assert locate(GCSStore("bucket", prefix="run")) == ("gs://bucket/run", {})
    azure = AzureStore("box", account_name="me", account_key="a2V5")
    assert locate(azure) == ("az://box", {"account_name": "me", "account_key": "a2V5"})


def test_what_was_named_by_text_stays_as_it_is(tmp_path: Path) -> None:
    assert locate(tmp_path) == (str(tmp_path), {})
    assert locate("s3://bucket/run", {"region": "here"}) == ("s3://bucket/run", {"region": "here"})


def provider() -> Any:
    """Credentials that only this program can tell."""
    return {"access_key_id": "AK", "secret_access_key": "hush", "expires_at": None}


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (MemoryStore(), "`MemoryStore` is no place"),
        (HTTPStore("https://example.org/run"), "`HTTPStore` is no place"),
        (LocalStore(), "names no folder"),
        (S3Store("bucket", credential_provider=provider), "credentials from a function"),
        (S3Store("bucket", client_options={"default_headers": {"a": "b"}}), "`default_headers`"),
        (7, "`int` is no place"),
    ],
)
def test_what_cannot_be_handed_on_is_refused_by_name(store: Any, words: str) -> None:
    for use in (cairn.Checkpointer, cairn.open):
        with pytest.raises(cairn.errors.StoreError, match=words) as error:
            use(store)
        assert error.value.hint is not None
        assert "hush" not in str(error.value)


def test_a_store_with_settings_beside_it_is_refused() -> None:
    store = S3Store("bucket", skip_signature=True)
    with pytest.raises(cairn.errors.StoreError, match="its own settings"):
        cairn.Checkpointer(store, storage_options={"region": "elsewhere"})
