"""Saves an iteration as Megatron does, on one rank without a GPU."""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main():
    # Megatron waits for a GPU that is not there.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedTensor
    from megatron.core.transformer.enums import AttnBackend

    run = Path(sys.argv[1])
    folder = run / "iter_0000500"
    folder.mkdir(parents=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    weight = torch.arange(12.0).reshape(3, 4)
    state = {
        "w": ShardedTensor.from_rank_offsets("decoder.w", weight),
        "iteration": 500,
        "args": argparse.Namespace(lr=0.1, backend=AttnBackend.flash, dtype=torch.bfloat16),
        "rng": torch.get_rng_state(),
    }
    dist_checkpointing.save(state, str(folder))
    (run / "latest_checkpointed_iteration.txt").write_text("500")


if __name__ == "__main__":
    main()
