"""Trains a small model on every device of this process, and resumes where it stopped.

    python jax_train.py FOLDER STEPS
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import cairn


class Momentum(NamedTuple):
    """The state of the optimizer."""

    steps: jax.Array
    velocity: Any


def fresh_state(mesh: Mesh) -> dict[str, Any]:
    """The state before the first step, with the weights spread over the mesh."""
    rng = jax.random.key(0)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    params = {
        "hidden": jax.device_put(jax.random.normal(jax.random.fold_in(rng, 1), (64, 32)) / 8, rows),
        "out": jax.random.normal(jax.random.fold_in(rng, 2), (32, 1)) / 8,
    }
    return {"params": params, "opt": Momentum(jnp.int32(0), jax.tree.map(jnp.zeros_like, params)), "rng": rng, "step": 0}


def loss(params: Any, inputs: Any) -> Any:
    """How far the model is from predicting the mean of its inputs."""
    predicted = jnp.tanh(inputs @ params["hidden"]) @ params["out"]
    return jnp.mean((predicted[:, 0] - inputs.mean(axis=1)) ** 2)


@jax.jit
def update(params: Any, opt: Momentum, rng: Any) -> tuple[Any, Momentum, Any, Any]:
    """One step of training on fresh random inputs."""
    rng, now = jax.random.split(rng)
    value, gradients = jax.value_and_grad(loss)(params, jax.random.normal(now, (16, 64)))
    velocity = jax.tree.map(lambda old, gradient: 0.9 * old + gradient, opt.velocity, gradients)
    params = jax.tree.map(lambda param, change: param - 0.01 * change, params, velocity)
    return params, Momentum(opt.steps + 1, velocity), rng, value


def main(folder: str, steps: int) -> None:
    """Trains until ``steps``, and saves every third step."""
    state = fresh_state(Mesh(np.array(jax.devices()), ("data",)))
    with cairn.Checkpointer(folder, keep=cairn.Keep(last=2)) as checkpointer:
        if checkpointer.steps():
            state = checkpointer.load(into=state).state
            print(f"resumed after step {state['step']}")
        for step in range(state["step"] + 1, steps + 1):
            state["params"], state["opt"], state["rng"], value = update(state["params"], state["opt"], state["rng"])
            state["step"] = step
            if step % 3 == 0:
                checkpointer.save(step, state, metrics={"loss": float(value)})
    print(f"step {state['step']}: loss {float(value):.9f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
