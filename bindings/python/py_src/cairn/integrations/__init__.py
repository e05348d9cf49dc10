"""Cairn inside other people's training loops: one module for each framework, which imports that framework and no other.

* :mod:`cairn.integrations.transformers`: a callback for the Hugging Face ``Trainer``
* :mod:`cairn.integrations.accelerate`: hooks for ``Accelerator.save_state`` and ``load_state``
* :mod:`cairn.integrations.lightning`: a ``CheckpointIO`` for Lightning's ``Trainer``
* :mod:`cairn.integrations.torchtitan`: a checkpoint manager with torchtitan's options
"""
