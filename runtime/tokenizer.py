"""Text to token ids and back, over the `tokenizers` library; decoding is by bytes, so that streaming is exact.

A token is bytes, not text: a character may be spread over four tokens. The library decodes whole sequences only, so
the bytes of each token are kept here, and one incremental UTF-8 decoder serves `decode` and `StreamDecoder` alike:
what is streamed is what would be decoded.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from tilec.errors import CheckpointError, UnsupportedError
from tilec.runtime import gguf_tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """One model's tokenizer.

    `bos_id` (or None) begins a prompt where `adds_bos`; any of `eos_ids` ends an answer; `special_ids` carry no text.
    `named` are the special tokens' texts under the names that chat templates use (bos_token, eos_token, ...).
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        prefix: Sequence[int] = (),
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        named: Mapping[str, str] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._prefix = list(prefix)
        self._spelling = _Spelling.of(backend)
        self._bytes: dict[int, bytes] = {}
        self.bos_id = bos_id
        self.adds_bos = bool(prefix)
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        self.special_ids = frozenset(
            index for index, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self.named = dict(named or {})

    @staticmethod
    def from_file(
        path: Path,
        tokenizer_config: Mapping[str, Any] | None = None,
        *,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
    ) -> Tokenizer:
        """From a tokenizer.json, with the content of tokenizer_config.json beside it.

        Prompts begin with what the file's post-processor puts before a text, unless the configuration's
        `add_bos_token` says otherwise. What it puts after a text is left out: a prompt is to be continued.
        """
        config = tokenizer_config or {}
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: not a tokenizer that can be read: {error}") from None
        named: dict[str, str] = {}
        for name in _NAMED:
            stated = config.get(name)
            text = stated.get("content") if isinstance(stated, Mapping) else stated
            if isinstance(text, str):
                named[name] = text
        if "bos_token" in named:
            stated_bos = backend.token_to_id(named["bos_token"])
            bos_id = bos_id if stated_bos is None else stated_bos
        elif bos_id is not None and (spelled := backend.id_to_token(bos_id)) is not None:
            named["bos_token"] = spelled
        ends = list(eos_ids)
        if "eos_token" in named:
            stated_eos = backend.token_to_id(named["eos_token"])
            ends += [] if stated_eos is None else [stated_eos]
        elif ends and (spelled := backend.id_to_token(ends[0])) is not None:
            named["eos_token"] = spelled
        prefix = _post_processor_prefix(backend)
        if config.get("add_bos_token") is False:
            prefix = []
        elif config.get("add_bos_token") is True and not prefix:
            if bos_id is None:
                raise CheckpointError(f"{path}: prompts are to begin with a bos token, but none is named")
            prefix = [bos_id]
        return Tokenizer(backend, prefix=prefix, bos_id=bos_id, eos_ids=ends, named=named)

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any], *, eos_ids: Iterable[int] = ()) -> Tokenizer:
        """From GGUF metadata. Raises UnsupportedError for a pre-tokenizer or a model that is not known by name."""
        described = gguf_tokenizer.build(metadata)
        prefix = [described.bos_id] if described.adds_bos and described.bos_id is not None else []
        return Tokenizer(
            described.backend,
            prefix=prefix,
            bos_id=described.bos_id,
            eos_ids=[*eos_ids, *described.eos_ids],
            named=described.named,
        )

    @property
    def vocab_size(self) -> int:
        """How many tokens have a text. The model's table may be longer, padded with ids that mean nothing."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of `text`, in which special tokens are found by their spelling.

        With `add_special`, a model that wants a BOS gets exactly one: none is put before one that the text has.
        """
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if add_special and ids[: len(self._prefix)] != self._prefix:
            return self._prefix + ids
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of a whole sequence; bytes that are not UTF-8 become U+FFFD, ids without a text vanish."""
        pieces = b"".join(self.token_bytes(index) for index in self._spoken(ids, skip_special))
        if self._spelling.strips_first_space and pieces.startswith(b" "):
            pieces = pieces[1:]
        return pieces.decode("utf-8", "replace")

    def token_bytes(self, index: int) -> bytes:
        """What a token adds to the text; empty for an id without one."""
        known = self._bytes.get(index)
        if known is None:
            text = self._backend.id_to_token(index) if 0 <= index < 1 << 32 else None
            known = self._bytes[index] = b"" if text is None else self._spelling.bytes_of(text)
        return known

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling, such as '<|im_end|>'."""
        return self._backend.token_to_id(token)

    def _spoken(self, ids: Iterable[int], skip_special: bool) -> Iterable[int]:
        return (index for index in ids if not (skip_special and index in self.special_ids))


class StreamDecoder:
    """Tokens one at a time to text that never ends inside a character.

    The tokens are taken to continue a text, so a first space is kept. All that `push` and the final `flush` return
    is, joined, what `Tokenizer.decode` gives (but for that space).
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        """The text that is complete with this token; often empty in the middle of a character."""
        if self._skip_special and index in self._tokenizer.special_ids:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(index))

    def flush(self) -> str:
        """The end of the text: a character that never became whole is U+FFFD."""
        return self._decoder.decode(b"", final=True)


class _Spelling:
    """How a vocabulary spells bytes: GPT-2's 256 printable characters, or SentencePiece's U+2581 and <0xNN>."""

    def __init__(self, byte_level: bool, space: str = "", byte_tokens: bool = False, strips: bool = False) -> None:
        self._byte_level, self._space, self._byte_tokens = byte_level, space, byte_tokens
        self.strips_first_space = strips

    @staticmethod
    def of(backend: tokenizers.Tokenizer) -> _Spelling:
        """Read off the library's decoder. Raises UnsupportedError for one that is not of these two kinds."""
        if backend.decoder is None:
            raise UnsupportedError(
                "a tokenizer without a decoder is not supported; supported are ByteLevel, ByteFallback"
            )
        described = json.loads(backend.decoder.__getstate__())
        steps = described["decoders"] if described["type"] == "Sequence" else [described]
        if [step["type"] for step in steps] == ["ByteLevel"]:
            return _Spelling(byte_level=True)
        space, byte_tokens, strips = "", False, False
        for step in steps:
            match step:
                case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": " "}:
                    space = pattern
                case {"type": "Metaspace", "replacement": str(replacement)}:
                    space, strips = replacement, step.get("prepend_scheme") != "never"
                case {"type": "ByteFallback"}:
                    byte_tokens = True
                case {"type": "Fuse"}:
                    pass
                case {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
                    strips = True
                case _:
                    raise UnsupportedError(
                        f"tokenizer decoder {step['type']} is not supported in this form; supported are ByteLevel, and "
                        "sequences of Replace, Metaspace, ByteFallback, Fuse, Strip as Llama has them"
                    )
        return _Spelling(False, space, byte_tokens, strips)

    def bytes_of(self, text: str) -> bytes:
        if self._byte_level:
            try:
                return bytes(_BYTE_OF_CHARACTER[character] for character in text)
            except KeyError:
                return text.encode("utf-8")  # an added token, spelled as it is
        if self._byte_tokens and (match := _BYTE_TOKEN.fullmatch(text)):
            return bytes.fromhex(match[1])
        return (text.replace(self._space, " ") if self._space else text).encode("utf-8")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling (Radford et al. 2019): printable Latin-1 is itself, the other 68 bytes are U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_alphabet()


def _post_processor_prefix(backend: tokenizers.Tokenizer) -> list[int]:
    """What the post-processor puts before a text."""
    plain: list[int] = backend.encode("a", add_special_tokens=False).ids
    full: list[int] = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start]
    return []
