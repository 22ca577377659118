"""Checkpoint formats, read where they lie: `open_checkpoint` is the one way in, whatever the format."""

from __future__ import annotations

from pathlib import Path

from tilec.errors import CheckpointError
from tilec.frontend.checkpoints.base import Checkpoint
from tilec.frontend.checkpoints.expected import check_tensors, expected_tensors
from tilec.frontend.checkpoints.gguf_file import GgufCheckpoint
from tilec.frontend.checkpoints.hf_folder import HuggingFaceCheckpoint

__all__ = ["Checkpoint", "check_tensors", "expected_tensors", "open_checkpoint"]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open and verify a `.gguf` file or a Hugging Face folder; weights are read later, by name.

    Raises CheckpointError for what is missing or damaged, UnsupportedError for what tilec does not implement.
    """
    path = Path(path)
    if path.is_dir():
        return HuggingFaceCheckpoint(path)
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path}: give the folder that holds this file, its config.json and its tokenizer.json")
    return GgufCheckpoint(path)
