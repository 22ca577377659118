"""Tokenizers: the same ids as the models' own, exactly one BOS, and text that streams without broken characters."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors, trainers
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers as pre

from tilec.errors import CheckpointError, TilecError, UnsupportedError
from tilec.frontend import hub
from tilec.frontend.checkpoints import open_checkpoint
from tilec.runtime.tokenizer import StreamDecoder, Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and it's 12345 times quicker than we've seen.",
    "def f(x):\n    return x + 1\n\n\n# 3.14159 \t end",
    "Explain in one sentence what a compiler does. The capital of France is Paris.",
    "naïve café über straße 日本語 日本 русский текст 🎉🎉 e\u0301",
] * 4  # fmt: skip

TEXTS = [
    "",
    "a",
    "The fox's tail, I'LL say, they'Re 12345 and 7 and 1/2.",
    "  two spaces  inside   and after  ",
    "line\nline\r\n\n  indented\t2 tabs\n\t3",
    "naïve café 日本語 🎉 ½ ² ١٢٣ e\u0301",
    "$+<=>^~| `code` --- ... ?!",
    "word" * 20,
    "<|end|>after<|start|> a<|end|>\nb",
]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# As the models' own tokenizer.json files have them.
OWN_CUTS = {
    "smollm": pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "gpt2": pre.ByteLevel(add_prefix_space=False, use_regex=True),
    "llama-bpe": pre.Sequence([pre.Split(Regex(LLAMA3), "isolated"), pre.ByteLevel(False, use_regex=False)]),
    "qwen2": pre.Sequence(
        [pre.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), pre.ByteLevel(False, use_regex=False)]
    ),
}
SPECIAL = ["<|end|>", "<|start|>"]


def byte_level(cut="gpt2"):
    """A byte-level tokenizer trained here, with <|end|> as 0 and <|start|> as 1."""
    backend = Backend(models.BPE(ignore_merges=cut == "llama-bpe"))
    backend.pre_tokenizer = OWN_CUTS[cut]
    backend.decoder = decoders.ByteLevel()
    if cut == "qwen2":
        backend.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def gguf_metadata(backend, **changes):
    """What a GGUF file would say of `backend`."""
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    metadata = {
        "model": "gpt2",
        "pre": "gpt2",
        "tokens": tokens,
        "token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "merges": [" ".join(merge) for merge in model["merges"]],
        "bos_token_id": 1,
        "eos_token_id": 0,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


@pytest.fixture
def saved(tmp_path):
    def to_file(backend):
        backend.save(str(tmp_path / "tokenizer.json"))
        return tmp_path / "tokenizer.json"

    return to_file


# tokenizer.json


def test_a_tokenizer_json_gives_the_ids_and_the_text_of_transformers(saved):
    transformers = pytest.importorskip("transformers")
    path = saved(byte_level("llama-bpe"))
    ours, theirs = Tokenizer.from_file(path), transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text).input_ids
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )


def test_truncation_and_padding_stored_in_a_tokenizer_json_are_not_applied(saved):
    backend = byte_level()
    want = backend.encode("word " * 50).ids
    backend.enable_truncation(8)
    backend.enable_padding(length=512)
    assert Tokenizer.from_file(saved(backend)).encode("word " * 50) == want


def with_bos(backend):
    backend.post_processor = processors.TemplateProcessing(
        single="<|start|> $A <|end|>", special_tokens=[("<|start|>", 1), ("<|end|>", 0)]
    )
    return backend


def test_there_is_exactly_one_bos_also_where_the_text_has_it_already(saved):
    tokenizer = Tokenizer.from_file(saved(with_bos(byte_level())), {"bos_token": "<|start|>", "eos_token": "<|end|>"})
    plain = tokenizer.encode("Hello", add_special=False)
    assert 1 not in plain
    assert tokenizer.encode("Hello") == [1, *plain]
    assert tokenizer.encode("<|start|>Hello") == [1, *plain]
    assert tokenizer.encode("") == [1]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (1, (0,), True)
    assert tokenizer.named == {"bos_token": "<|start|>", "eos_token": "<|end|>"}


@pytest.mark.parametrize(("stated", "want"), [(None, True), (True, True), (False, False)])
def test_the_configuration_says_whether_a_prompt_begins_with_bos(stated, want, saved):
    config = {"bos_token": {"content": "<|start|>"}} | ({} if stated is None else {"add_bos_token": stated})
    assert (Tokenizer.from_file(saved(with_bos(byte_level())), config).encode("a")[0] == 1) is want
    assert (Tokenizer.from_file(saved(byte_level()), config).encode("a")[0] == 1) is (stated is True)


def test_a_bos_that_is_wanted_but_not_named_is_an_error(saved):
    with pytest.raises(CheckpointError, match="prompts are to begin with a bos token, but none is named"):
        Tokenizer.from_file(saved(byte_level()), {"add_bos_token": True})


def test_all_the_tokens_that_end_an_answer_are_known(saved):
    tokenizer = Tokenizer.from_file(saved(byte_level()), {"eos_token": "<|end|>"}, bos_id=1, eos_ids=[1])
    assert tokenizer.eos_ids == (1, 0)
    assert tokenizer.named == {"eos_token": "<|end|>", "bos_token": "<|start|>"}
    assert tokenizer.special_ids == {0, 1}


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer.json: not a tokenizer that can be read"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_decoder_that_is_not_known_is_refused_by_name(saved):
    backend = byte_level()
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedError, match="tokenizer decoder WordPiece is not supported"):
        Tokenizer.from_file(saved(backend))


# Streaming


@given(st.text())
def test_streamed_text_is_the_text(text):
    tokenizer = Tokenizer(BACKEND)
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(index) for index in tokenizer.encode(text, add_special=False)] + [stream.flush()]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces if "\ufffd" not in text)


@given(st.lists(st.integers(-1, 600)))
def test_streaming_any_tokens_gives_what_decoding_them_gives(ids):
    tokenizer = Tokenizer(BACKEND)
    for skip in (True, False):
        stream = StreamDecoder(tokenizer, skip)
        assert "".join([*map(stream.push, ids), stream.flush()]) == tokenizer.decode(ids, skip)


BACKEND = byte_level()


def test_a_character_of_several_tokens_comes_out_with_the_last_one():
    tokenizer = Tokenizer(BACKEND)
    ids = tokenizer.encode("🚀")
    assert len(ids) > 1
    stream = StreamDecoder(tokenizer)
    assert [stream.push(index) for index in ids] == [""] * (len(ids) - 1) + ["🚀"]
    assert stream.push(ids[0]) == ""
    assert stream.flush() == "\ufffd"


def test_special_tokens_are_silent_unless_asked_for():
    tokenizer = Tokenizer(BACKEND)
    ids = tokenizer.encode("a<|end|>b")
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == "a<|end|>b"
    assert tokenizer.decode([10**6, -1]) == ""


# GGUF, byte level


@pytest.mark.parametrize("cut", OWN_CUTS)
def test_a_gguf_pre_tokenizer_cuts_as_the_models_own_file_does(cut):
    own = byte_level(cut)
    tokenizer = Tokenizer.from_gguf(gguf_metadata(own, pre=cut, add_bos_token=False))
    for text in [*TEXTS, *CORPUS]:
        assert tokenizer.encode(text) == own.encode(text).ids
        want = normalizers.NFC().normalize_str(text) if cut == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text), False) == want


def test_the_default_pre_tokenizer_cuts_numbers_in_threes_and_punctuation_alone():
    tokenizer = Tokenizer.from_gguf(gguf_metadata(byte_level(), pre=None))
    cuts = tokenizer._backend.pre_tokenizer.pre_tokenize_str("it's 12345, (ok)")
    assert [text.replace("Ġ", " ") for text, _ in cuts] == ["it", "'", "s", " ", "123", "45", ",", " ", "(", "ok", ")"]


@pytest.mark.parametrize(("cut", "want"), [("gpt2", False), ("llama-bpe", True)])
def test_a_gguf_file_that_does_not_say_has_the_bos_of_its_kind(cut, want):
    assert Tokenizer.from_gguf(gguf_metadata(byte_level(), pre=cut)).adds_bos is want
    assert Tokenizer.from_gguf(gguf_metadata(byte_level(), pre=cut, add_bos_token=not want)).adds_bos is not want


def test_user_defined_tokens_of_a_gguf_file_are_whole_and_heard():
    metadata = gguf_metadata(byte_level())
    metadata["tokenizer.ggml.tokens"].append("<think now>")
    metadata["tokenizer.ggml.token_type"].append(4)
    tokenizer = Tokenizer.from_gguf(metadata)
    ids = tokenizer.encode("a<think now>b")
    assert ids[1] == len(metadata["tokenizer.ggml.tokens"]) - 1
    assert tokenizer.decode(ids) == "a<think now>b"


def test_the_end_of_a_turn_ends_an_answer_although_the_file_names_only_the_end_of_a_text():
    metadata = gguf_metadata(byte_level())
    metadata["tokenizer.ggml.tokens"].append("<|eot_id|>")
    metadata["tokenizer.ggml.token_type"].append(3)
    assert Tokenizer.from_gguf(metadata).eos_ids == (0, len(metadata["tokenizer.ggml.tokens"]) - 1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"pre": "tekken"},
            UnsupportedError,
            "pre-tokenizer 'tekken' is not supported; supported are smollm, llama-bpe",
        ),
        ({"pre": [1]}, UnsupportedError, "pre-tokenizer"),
        ({"model": "rwkv"}, UnsupportedError, "tokenizer model 'rwkv' is not supported; supported are gpt2, llama"),
        ({"model": None}, CheckpointError, "has no 'tokenizer.ggml.model'"),
        ({"tokens": None}, CheckpointError, "has no 'tokenizer.ggml.tokens'"),
        ({"merges": None}, CheckpointError, "has no 'tokenizer.ggml.merges'"),
        ({"merges": ["Q9 x7"]}, CheckpointError, "vocabulary and merges do not fit together"),
        ({"merges": ["a"]}, CheckpointError, "vocabulary and merges do not fit together"),
        ({"token_type": [1]}, CheckpointError, "need one value of 'tokenizer.ggml.token_type' for each of"),
        ({"tokens": [1, 2]}, CheckpointError, "need a list of str values as 'tokenizer.ggml.tokens'"),
        ({"eos_token_id": 10**6}, CheckpointError, "need 'tokenizer.ggml.eos_token_id' among"),
        ({"bos_token_id": None, "add_bos_token": True}, CheckpointError, "has no 'tokenizer.ggml.bos_token_id'"),
    ],
)
def test_a_gguf_tokenizer_that_cannot_be_right_is_refused_by_name(changes, error, message):
    with pytest.raises(error, match=message):
        Tokenizer.from_gguf(gguf_metadata(byte_level(), **changes))


# GGUF, SentencePiece


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory):
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "corpus.txt").write_text("\n".join(CORPUS))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"), model_prefix=str(folder / "m"), vocab_size=420, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=["<|user|>"], minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))


def sentencepiece_metadata(model, **changes):
    size = model.get_piece_size()
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i)
        else 4 if model.id_to_piece(i) == "<|user|>" else 1
        for i in range(size)
    ]  # fmt: skip
    metadata = {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in range(size)],
        "scores": [float(model.get_score(i)) for i in range(size)],
        "token_type": kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}


def test_a_sentencepiece_vocabulary_gives_the_ids_of_sentencepiece(sentencepiece_model):
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model))
    for text in [*TEXTS[:-1], *CORPUS, "\x00\x01 unknown ☃ bytes"]:
        ids = tokenizer.encode(text)
        assert ids == [1, *sentencepiece_model.encode(text)]
        assert tokenizer.decode(ids) == text


def test_a_continuation_keeps_its_first_space_and_a_whole_text_does_not(sentencepiece_model):
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model))
    ids = tokenizer.encode("The fox", add_special=False)
    stream = StreamDecoder(tokenizer)
    assert "".join([*map(stream.push, ids), stream.flush()]) == " The fox"
    assert tokenizer.decode(ids) == "The fox"


def test_a_sentencepiece_vocabulary_without_a_space_prefix_adds_none(sentencepiece_model):
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model, add_space_prefix=False))
    assert tokenizer.decode(tokenizer.encode(" fox")) == " fox"
    assert tokenizer.encode("fox")[1:] != sentencepiece_model.encode("fox")


def test_a_sentencepiece_tokenizer_json_decodes_as_transformers_does(sentencepiece_model, saved):
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model))
    path = saved(ours._backend)
    again, theirs = Tokenizer.from_file(path), transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    for text in [*TEXTS, *CORPUS]:
        ids = again.encode(text)
        assert ids == theirs(text).input_ids
        assert again.decode(ids, False) == theirs.decode(ids, clean_up_tokenization_spaces=False)


def test_added_tokens_beyond_the_vocabulary_are_spelled_as_they_are(saved):
    backend = byte_level()
    size = backend.get_vocab_size()
    backend.add_tokens([AddedToken("日本 語", normalized=False)])
    tokenizer = Tokenizer.from_file(saved(backend))
    assert tokenizer.decode(tokenizer.encode("a日本 語b")) == "a日本 語b"
    assert tokenizer.vocab_size == size + 1


# The demo model


@pytest.fixture(scope="module")
def demo():
    try:
        return open_checkpoint(hub.resolve("smollm2-135m-instruct"))
    except TilecError as error:
        pytest.skip(str(error))


def test_the_demo_tokenizer_has_the_ids_of_the_models_own(demo):
    tokenizer = demo.tokenizer()
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (1, (2,), False)
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("<|im_start|>user\n2024<|im_end|>") == [1, 4093, 198, 34, 32, 34, 36, 2]
    own = Backend(models.BPE(vocab=tokenizer._backend.get_vocab(False), merges=merges_of(demo)))
    own.pre_tokenizer = OWN_CUTS["smollm"]
    for text in [*TEXTS[:-1], *CORPUS]:
        assert tokenizer.encode(text) == own.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text


def merges_of(checkpoint):
    return [tuple(merge.split(" ")) for merge in checkpoint.metadata["tokenizer.ggml.merges"]]


def test_the_demo_tokenizer_agrees_with_transformers_reading_of_the_file(demo):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(demo.path.parent, gguf_file=demo.path.name)
    ours = demo.tokenizer()
    for text in [*TEXTS[:-1], *CORPUS]:
        if not any(character.isnumeric() for character in text):  # which its reader does not cut singly
            assert ours.encode(text) == theirs(text).input_ids
