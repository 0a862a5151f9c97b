"""The model and the GPU that a command is asked about: by name, or the model by the `config.json` it came with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from backends.config_json import ModelUnreadable, model_of_config, rounded_by, sees_more_than_text
from backends.hardware import GPUS, Gpu
from backends.models import CATALOGUE, Model
from gateway.command_line.refusals import remark
from gateway.terminal import refused

_FILE: Final = "config.json"
_CACHED: Final = "models--"
"""So a model's folder begins in Hugging Face's cache: `models--OWNER--NAME/snapshots/REVISION/config.json`."""

ConfigJson = Annotated[
    Path | None, typer.Option(help="Instead of a name: the model's config.json, in Hugging Face's form, or its folder.")
]


def known_model(name: str | None) -> Model:
    """Of the catalogue. Raises what `refused` makes where it has none of that name."""
    if name is None or name not in CATALOGUE:
        raise refused(f"{name or 'no model'}: known are {', '.join(CATALOGUE)}", code="model_unknown")
    return CATALOGUE[name]


def known_gpu(name: str) -> Gpu:
    """Of a kind. Raises what `refused` makes where none is called so."""
    if name not in GPUS:
        raise refused(f"{name}: known are {', '.join(GPUS)}", code="gpu_unknown")
    return GPUS[name]


def asked_model(name: str | None, path: Path | None) -> Model:
    """By its name, or by its file; says what of the file is not counted. Raises what `refused` makes."""
    if path is None:
        return known_model(name)
    if name is not None:
        raise refused(f"{name} and {path}: a model has a name of the catalogue or a file")
    return _published(path / _FILE if path.is_dir() else path)


def _published(path: Path) -> Model:
    config = _read(path)
    try:
        model = model_of_config(config, _name_of(path.absolute()))
    except ModelUnreadable as unreadable:
        raise refused(f"{path}: {unreadable}", code="model_unreadable") from None
    if sees_more_than_text(config):
        remark(f"{path}: what it sees pictures or hears sound with is not counted")
    if (method := rounded_by(config)) is not None:
        remark(f"{path}: its weights are published in {method}; --weight-bits says which it is planned for")
    return model


def _name_of(path: Path) -> str:
    """The file's; of a `config.json` its folder's, or the repository's where that is Hugging Face's cache."""
    if path.name != _FILE:
        return path.stem
    cached = next((folder.name for folder in path.parents if folder.name.startswith(_CACHED)), None)
    return path.parent.name if cached is None else cached.removeprefix(_CACHED).replace("--", "/")


def _read(path: Path) -> Mapping[str, object]:
    try:
        config = json.loads(path.read_bytes())
    except OSError as unusable:
        raise refused(unusable) from None
    except (ValueError, RecursionError) as broken:
        raise refused(f"{path} is no JSON: {broken}", code="model_unreadable") from None
    if not isinstance(config, dict):
        raise refused(f"{path} is no JSON object", code="model_unreadable")
    return config
