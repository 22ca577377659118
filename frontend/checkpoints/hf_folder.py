"""A Hugging Face folder as a checkpoint: config.json, safetensors in one file or in shards, tokenizer.json.

Where the folder's files disagree about which token ends an answer, all of them do: an instruction model's
generation_config.json often knows one more than its config.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tilec.errors import CheckpointError, UnsupportedError, shown
from tilec.frontend.checkpoints.base import Checkpoint, StoredTensor, fingerprint_of, map_file
from tilec.frontend.checkpoints.safetensors_header import read_header
from tilec.frontend.config import ModelConfig
from tilec.runtime.tokenizer import Tokenizer

INDEX = "model.safetensors.index.json"


class HuggingFaceCheckpoint(Checkpoint):
    """Opened from a folder; raises as `safetensors_header.read_header` and `ModelConfig.from_hf` do."""

    def __init__(self, path: Path) -> None:
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path}: the folder has no config.json; {_what_to_give(path)}")
        try:
            config = ModelConfig.from_hf(_with_all_eos(path, read_json(path / "config.json")))
        except (CheckpointError, UnsupportedError) as error:
            raise type(error)(f"{path}: {error}") from None
        shards, index = _shards(path)
        tensors: dict[str, StoredTensor] = {}
        home: dict[str, str] = {}
        headers: list[bytes] = []
        for shard in shards:
            content = map_file(shard)
            header = read_header(shard, content)
            buffer = np.frombuffer(content, np.uint8)
            headers.append(bytes(buffer[: header.data_start]))
            for name, info in header.tensors.items():
                if name in tensors:
                    raise CheckpointError(f"{path}: tensor {name!r} is in both {home[name]} and {shard.name}")
                tensors[name] = StoredTensor(info.type_name, info.shape, buffer[info.start : info.start + info.size])
                home[name] = shard.name
        for name, file in index.items():
            if home.get(name) != file:
                raise CheckpointError(f"{path}: {INDEX} says that tensor {shown(name)} is in {file}, where it is not")
        super().__init__(path, config, tensors)
        self._headers, self._shards = headers, shards
        self._tokenizer_config = read_json(path / "tokenizer_config.json", optional=True)
        self.chat_template = _chat_template(path, self._tokenizer_config)

    def tokenizer(self) -> Tokenizer:
        file = self.path / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{self.path}: the folder has no tokenizer.json; put the model's own there")
        return Tokenizer.from_file(
            file, self._tokenizer_config, bos_id=self.config.bos_token_id, eos_ids=self.config.eos_token_ids
        )

    def fingerprint(self) -> str:
        small = ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja")
        present = [self.path / name for name in small if (self.path / name).is_file()]
        files = [*self._shards, *present]
        if (self.path / "tokenizer.json").is_file():
            files.append(self.path / "tokenizer.json")
        return fingerprint_of(files, self._headers + [path.read_bytes() for path in present])


def read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError; an `optional` file that is absent is an empty object."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read the file: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the file is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: need a JSON object, but got a {type(content).__name__}")
    return content


def _with_all_eos(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    generation = read_json(path / "generation_config.json", optional=True)
    eos: list[Any] = []
    for source in (config, generation):
        stated = source.get("eos_token_id")
        for token in stated if isinstance(stated, list) else [] if stated is None else [stated]:
            if token not in eos:
                eos.append(token)
    return {**config, "eos_token_id": eos}


def _shards(path: Path) -> tuple[list[Path], dict[str, str]]:
    """The files that hold the weights, and which tensor the index, if there is one, places in which."""
    if (path / INDEX).is_file():
        index = read_json(path / INDEX).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
            raise CheckpointError(f"{path / INDEX}: need a 'weight_map' from tensor names to file names")
        names = sorted(set(index.values()))
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(f"{path / INDEX}: the file {name!r} is not in the folder itself")
            if not (path / name).is_file():
                raise CheckpointError(f"{path}: the shard {name} is missing; fetch the model again")
        return [path / name for name in names], index
    single = path / "model.safetensors"
    found = [single] if single.is_file() else sorted(path.glob("*.safetensors"))
    if not found:
        raise CheckpointError(f"{path}: the folder has no *.safetensors; {_what_to_give(path)}")
    return found, {}


def _what_to_give(path: Path) -> str:
    files = sorted(path.glob("*.gguf"))
    if files:
        return f"give the GGUF file itself, such as {files[0]}"
    if _any(path.glob("pytorch_model*.bin")):
        return "weights in pytorch_model.bin are not supported: save the model again as safetensors"
    return "give a GGUF file or a folder with config.json, *.safetensors and tokenizer.json"


def _any(paths: Iterable[Path]) -> bool:
    return next(iter(paths), None) is not None


def _chat_template(path: Path, tokenizer_config: dict[str, Any]) -> str | None:
    """The file chat_template.jinja, or tokenizer_config.json's template, of several the one named 'default'."""
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file}: cannot read the chat template: {error}") from None
    stated = tokenizer_config.get("chat_template")
    if isinstance(stated, list):
        defaults = [entry for entry in stated if isinstance(entry, dict) and entry.get("name") == "default"]
        stated = defaults[0].get("template") if defaults else None
    return stated if isinstance(stated, str) else None
