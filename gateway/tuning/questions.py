"""The text that is read and the questions that are asked: our own, in the package, or files of the user's.

Both were written for this purpose, under the licence of this software, so that no model was made from them.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.strict_yaml import first_complaint, load_yaml
from gateway.tuning.errors import SweepInvalid

_TASK_TOKENS: Final = 16
"""Of answers to tasks, which are a word or two."""
_DATA: Final = files("gateway.tuning").joinpath("data")


@dataclass(frozen=True, slots=True)
class Question:
    """`answers` are the right ones; without any it is an open question, asked to see whether answers stay the same."""

    prompt: str
    answers: tuple[str, ...]
    most_tokens: int


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = Field(min_length=1)
    answers: tuple[str, ...] = ()


_LIST: Final = TypeAdapter(list[_Asked])


def held_text(path: Path | None) -> str:
    """Of that file, else ours. Raises `SweepInvalid`."""
    return _read(path, "held_text.txt").strip()


def questions(path: Path | None, open_tokens: int) -> list[Question]:
    """Of that file, else ours; open ones are answered with `open_tokens`. Raises `SweepInvalid`."""
    where = path or "the questions"
    try:
        asked = _LIST.validate_python(load_yaml(_read(path, "questions.yaml")))
    except yaml.YAMLError as error:
        raise SweepInvalid(f"{where}: {error}") from None
    except ValidationError as error:
        raise SweepInvalid(f"{where}: {first_complaint(error)}") from None
    return [Question(one.prompt, one.answers, _TASK_TOKENS if one.answers else open_tokens) for one in asked]


def _read(path: Path | None, ours: str) -> str:
    try:
        return (path or _DATA.joinpath(ours)).read_text(encoding="utf-8")
    except OSError as error:
        raise SweepInvalid(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SweepInvalid(f"{path}: it is not text in UTF-8") from None
