"""The tokenizer that a GGUF file describes, rebuilt in the `tokenizers` library.

GGUF names the way in which text is cut before merging (`tokenizer.ggml.pre`); a wrong cut gives plausible but wrong
tokens, so a name that is not in the table below is refused and not approximated. The cuts are llama.cpp's
(llama-vocab.cpp), in the form in which the models' own tokenizer.json has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from tilec.errors import CheckpointError, UnsupportedError, shown

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut: each expression in turn cuts the pieces that the one before left.

    `whole_words` takes a piece that is itself in the vocabulary without merging; `bos` is llama.cpp's default.
    """

    cuts: tuple[str, ...]
    whole_words: bool = False
    bos: bool = False
    compose: bool = False  # Unicode NFC first

    def build(self) -> Any:
        splits = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in self.cuts]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "llama-bpe": PreTokenizer((_LLAMA3,), whole_words=True, bos=True),
    "gpt2": PreTokenizer((_GPT2,)),
    "qwen2": PreTokenizer((_QWEN2,), compose=True),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}
_SAME_AS = {"gpt-2": "gpt2", "llama3": "llama-bpe", "llama-v3": "llama-bpe"}

# Tokens that end a turn of chat. Many files name only the end of a text as eos, and answers would run on.
_END_OF_TURN = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>")


@dataclass(frozen=True)
class GgufTokenizer:
    """The library's tokenizer and what GGUF says beside it."""

    backend: tokenizers.Tokenizer
    bos_id: int | None
    adds_bos: bool
    eos_ids: tuple[int, ...]
    named: dict[str, str]  # bos_token, eos_token, ... as chat templates know them


def build(metadata: Mapping[str, Any]) -> GgufTokenizer:
    """From GGUF metadata. Raises CheckpointError for what is missing or inconsistent, UnsupportedError by name."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise CheckpointError("the GGUF file has no 'tokenizer.ggml.model': it carries no tokenizer")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(f"tokenizer model {shown(kind)} is not supported; supported are gpt2, llama")
    tokens = _list_of(metadata, "tokenizer.ggml.tokens", str)
    types = _list_of(metadata, "tokenizer.ggml.token_type", int, len(tokens))
    try:
        if kind == "gpt2":
            backend, bos = _byte_level(metadata, tokens)
        else:
            backend, bos = _sentencepiece(metadata, tokens), True
        _add_special_tokens(backend, tokens, types)
    except (CheckpointError, UnsupportedError):
        raise
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"the GGUF file's vocabulary and merges do not fit together: {error}") from None

    special = {name: _token_id(metadata, f"{name}_token_id", len(tokens)) for name in ("bos", "eos", "eot", "eom")}
    special["unk"] = _token_id(metadata, "unknown_token_id", len(tokens))
    special["pad"] = _token_id(metadata, "padding_token_id", len(tokens))
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", bos)
    if adds_bos and special["bos"] is None:
        raise CheckpointError("the GGUF file has no 'tokenizer.ggml.bos_token_id', although its prompts begin with one")
    ends = [special[name] for name in ("eos", "eot", "eom")]
    ends += [index for index, token in enumerate(tokens) if token in _END_OF_TURN and types[index] == _CONTROL]
    return GgufTokenizer(
        backend,
        bos_id=special["bos"],
        adds_bos=bool(adds_bos),
        eos_ids=tuple(dict.fromkeys(index for index in ends if index is not None)),
        named={f"{name}_token": tokens[index] for name, index in special.items() if index is not None},
    )


def _byte_level(metadata: Mapping[str, Any], tokens: list[str]) -> tuple[tokenizers.Tokenizer, bool]:
    """Byte-level BPE (Radford et al. 2019), and whether prompts begin with BOS where the file does not say."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    pre = PRE_TOKENIZERS.get(_SAME_AS.get(name, name)) if isinstance(name, str) else None
    if pre is None:
        raise UnsupportedError(
            f"pre-tokenizer {shown(name)} is not supported; supported are {', '.join(PRE_TOKENIZERS)}"
        )
    merges = [tuple(merge.split(" ")) for merge in _list_of(metadata, "tokenizer.ggml.merges", str)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre.whole_words))
    if pre.compose:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre.build()
    backend.decoder = decoders.ByteLevel()
    return backend, pre.bos


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str]) -> tokenizers.Tokenizer:
    """SentencePiece's BPE (Kudo and Richardson 2018): of all adjacent pairs, the one whose union scores best merges.

    Spaces are written as U+2581, one is put before each stretch of text, and unknown characters become byte tokens.
    """
    scores = _list_of(metadata, "tokenizer.ggml.scores", float, len(tokens))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = _token_id(metadata, "unknown_token_id", len(tokens))
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges_by_score(vocabulary, scores),
            unk_token=tokens[0 if unknown is None else unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    strip: list[Any] = []
    spaces: list[Any] = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        strip.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _merges_by_score(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the best-scoring token first.

    The order among equals is the one in which the models' own tokenizer.json files were written (transformers,
    `generate_merges`): longer left parts first, then longer right parts, then the order of the vocabulary.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for token, index in vocabulary.items():
        ways = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        ways = [(left, right) for left, right in ways if left in vocabulary and right in vocabulary]
        ways.sort(key=lambda way: (vocabulary[way[0]], vocabulary[way[1]]))
        found += [(scores[index], len(left), len(right), left, right) for left, right in ways]
    found.sort(key=lambda entry: entry[:3], reverse=True)
    return [(left, right) for *_, left, right in found]


def _add_special_tokens(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Control and user-defined tokens are found whole in any text; only control tokens vanish from decoded text."""
    control = [token for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _UNKNOWN)]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control if token])
    user = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in user if token])


def _list_of(metadata: Mapping[str, Any], key: str, kind: type, length: int | None = None) -> list[Any]:
    values = metadata.get(key)
    if values is None:
        raise CheckpointError(f"the GGUF file has no {key!r}, which its tokenizer needs")
    if not isinstance(values, list) or not values or not all(type(value) is kind for value in values):
        raise CheckpointError(f"need a list of {kind.__name__} values as {key!r}")
    if length is not None and len(values) != length:
        raise CheckpointError(f"need one value of {key!r} for each of {length} tokens, but got {len(values)}")
    return values


def _token_id(metadata: Mapping[str, Any], name: str, vocabulary: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < vocabulary:
        raise CheckpointError(f"need 'tokenizer.ggml.{name}' among {vocabulary} tokens, but got {shown(value)}")
    return value
