"""What Orbax wrote, opened by `cairn`: bit for bit, in every form that Orbax has."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors.flax import load_file

FORMS = [
    {"use_ocdbt": ocdbt, "use_zarr3": zarr3, "use_compression": compression}
    for ocdbt in (False, True)
    for zarr3 in (False, True)
    for compression in (False, True)
]


def state():
    """Arrays of several types, split in several ways, with chunks of all lengths."""
    devices = np.array(jax.devices())
    mesh = Mesh(devices.reshape(-1, 2) if len(devices) % 2 == 0 else devices.reshape(-1, 1), ("data", "model"))
    rng = np.random.default_rng(1)

    def split(array, *axes):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))

    return {
        "params": {
            "rows": split(jnp.asarray(rng.standard_normal((64, 48)), jnp.float32), "data"),
            "both": split(jnp.asarray(rng.standard_normal((16, 8, 6)), jnp.bfloat16), "data", "model"),
            "whole": jnp.asarray(rng.integers(0, 100, 1000), jnp.int32),
        },
        "moments": [jnp.zeros((512, 512), jnp.float32), np.arange(6, dtype=np.int8)],
        "count": jnp.int32(7),
    }


def flat(tree):
    names = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in names}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(name[4:] for name, on in form.items() if on) or "plain")
def test_a_step_of_orbax_is_converted_bit_for_bit(cairn, tmp_path, form):
    expected = state()
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**form)).save(tmp_path / "step", {**expected, "epoch": 3, "note": "x"})
    cairn.run("convert", tmp_path / "step", tmp_path / "model", "--to", "hf")
    found = load_file(tmp_path / "model/model.safetensors")
    expected = flat(expected)
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(found[name]), array, err_msg=name)
    values = cairn.json("inspect", tmp_path / "step")["values"]
    assert values["epoch"] == 3 and values["note"] == "x"


def test_the_newest_step_of_a_manager_is_opened(cairn, tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (2, 10):
            arrays = {"w": jnp.full((3,), step, jnp.float32)}
            manager.save(step, args=ocp.args.StandardSave(arrays))
        manager.wait_until_finished()
    cairn.run("convert", tmp_path / "run", tmp_path / "newest", "--to", "hf")
    cairn.run("convert", tmp_path / "run/2", tmp_path / "older", "--to", "hf")
    assert load_file(tmp_path / "newest/model.safetensors")["w"].tolist() == [10.0] * 3
    assert load_file(tmp_path / "older/model.safetensors")["w"].tolist() == [2.0] * 3
