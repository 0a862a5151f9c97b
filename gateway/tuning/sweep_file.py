"""A sweep as a file says it, checked whole before anything is started.

    command: llama-server -m model.gguf --port {port} -t {threads} -ctk {kv}
    grid: {threads: [1, 2], kv: [f16, q8_0]}        every combination, the last key fastest
    settings: [{threads: 4, kv: f16}]                and these besides
    url: http://{host}:8000                          in place of a command: engines that run already

A word that is one placeholder alone stands for as many words as its value has; no shell reads the command. `{port}` is
a free one of this machine. Whatever is not written like a placeholder, as JSON in braces, stays as it is.
"""

import hashlib
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gateway.measuring.sweep import CONNECTIONS
from gateway.measuring.types import MOST_CV, MOST_TOKENS
from gateway.sim.loads import by_name
from gateway.strict_yaml import first_complaint, load_yaml
from gateway.tuning.errors import SweepInvalid
from gateway.tuning.types import QUALITY_AXES, Value, named, shown

_PLACE: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
_NO_LETTER: Final = re.compile(r"[\0\ud800-\udfff]")
_PORT: Final = "port"
_MOST_SETTINGS: Final = 10_000

AxisName = Literal[
    "output_tokens_per_s",
    "requests_per_s",
    "ttft_s",
    "itl_s",
    "memory_bytes",
    "gpu_bytes",
    "kv_tokens",
    "perplexity",
    "agreement",
    "tasks",
]


def _is_value(told: object) -> object:
    match told:
        case list():
            is_one = all(isinstance(one, str) for one in told)
        case float():
            is_one = math.isfinite(told)
        case _:
            is_one = isinstance(told, str | int)
    if not is_one:
        raise ValueError("a value is a text, a number, true or false, or a list of texts")
    return told


Checked = Annotated[Value, BeforeValidator(_is_value)]
Values = dict[str, Checked]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Load(_Section):
    """What each setting has to serve, as `prefixgate measure` offers it: lengths in tokens, times in seconds."""

    clients: int | None = Field(default=None, ge=1, le=CONNECTIONS)
    rate: float | None = Field(default=None, gt=0)
    cv: float = Field(default=1.0, ge=0, le=MOST_CV)
    prompt: int = Field(default=256, ge=1, le=MOST_TOKENS)
    output: int = Field(default=64, ge=1, le=MOST_TOKENS)
    length_cv: float = Field(default=0.0, ge=0, le=MOST_CV)
    shared: float = Field(default=0.0, ge=0, le=1)
    groups: int = Field(default=8, ge=1, le=MOST_TOKENS)
    load: str | None = None
    trace: Path | None = None
    corpus: Path | None = None
    warm: float = Field(default=2.0, ge=0)
    seconds: float = Field(default=20.0, ge=0.1)
    drain: float = Field(default=60.0, ge=0)
    requests: int | None = Field(default=None, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _is_one_loop(self) -> Self:
        if self.clients is not None and self.rate is not None:
            raise ValueError("either clients or rate: a loop is closed or open")
        if sum(one is not None for one in (self.load, self.trace, self.corpus)) > 1:
            raise ValueError("only one of a load, a trace and a corpus")
        if self.load is not None and self.load not in by_name:
            raise ValueError(f"built-in loads are {', '.join(by_name)}")
        return self

    @property
    def files(self) -> list[Path]:
        """What it reads."""
        return [one for one in (self.trace, self.corpus) if one is not None]


class Questions(_Section):
    """What tells the quality. There is no switch for none."""

    text: Path | None = None
    questions: Path | None = None
    open_tokens: int = Field(default=48, ge=1)
    again: int = Field(default=4, ge=0)


class Limits(_Section):
    """Seconds to wait for an engine to answer, and for all of one setting."""

    ready: float = Field(default=300.0, gt=0)
    setting: float = Field(default=3600.0, gt=0)


class Sweep(_Section):
    """The file. `front`: by which figures settings are held against each other; one of them is of quality, and where no
    engine tells it, agreement stands in."""

    command: str | list[str] | None = None
    url: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Checked], Field(min_length=1)]] = Field(default_factory=dict)
    settings: list[Values] = Field(default_factory=list)
    baseline: Values | None = None
    model: str | None = None
    load: Load = Load()
    quality: Questions = Questions()
    limits: Limits = Limits()
    front: tuple[AxisName, ...] = ("output_tokens_per_s", "memory_bytes", "perplexity")

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("either a command that starts an engine, or the url of one that runs")
        if not QUALITY_AXES & set(self.front):
            raise ValueError("front: speed alone says nothing; add perplexity, agreement or tasks")
        if len(set(self.front)) != len(self.front):
            raise ValueError("front: an axis stands twice")
        if self.command is not None and _PORT not in self.placeholders:
            raise ValueError("command: {port} is where the engine shall listen")
        return self

    @model_validator(mode="after")
    def _has_settings(self) -> Self:
        # Before they are written out, of which a grid of a few lines could have thousands of millions.
        if math.prod(map(len, self.grid.values())) + len(self.settings) > _MOST_SETTINGS:
            raise ValueError(f"more than {_MOST_SETTINGS:,} settings")
        settings = self.all_settings()
        if not settings:
            raise ValueError("no setting: it has neither a grid nor settings")
        self._can_be_given([*self.words, *self.environment, *self.environment.values(), *_texts(settings)])
        places = self.placeholders - ({_PORT} if self.command is not None else set())
        for setting in settings:
            self._fits(setting, places)
        if len(set(map(_as_written, settings))) < len(settings):
            raise ValueError("a setting stands twice")
        if self.baseline is not None and self.baseline not in settings:
            raise ValueError("baseline: it is none of the settings")
        return self

    def _can_be_given(self, words: Sequence[str]) -> None:
        if any(_NO_LETTER.search(word) for word in words) or any("=" in name for name in self.environment):
            raise ValueError(
                "a word has a letter that no process can be given (a zero, half of a letter, = in a variable's name)"
            )

    def _fits(self, setting: Values, places: set[str]) -> None:
        if missing := places - set(setting):
            where = named(setting) or "a setting without values"
            raise ValueError(f"no value for {', '.join(sorted(missing))} in {where}")
        if unused := set(setting) - places:
            raise ValueError(
                f"no place for {', '.join(sorted(unused))}: write {{{min(unused)}}} into command, url, "
                "environment or model"
            )

    @property
    def words(self) -> list[str]:
        """Of the command, with its placeholders."""
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command or ())

    @property
    def placeholders(self) -> set[str]:
        """Names in braces."""
        texts = [*self.words, self.url or "", self.model or "", *self.environment.values()]
        return {name for text in texts for name in _PLACE.findall(text)}

    def all_settings(self) -> list[Values]:
        """The baseline first: the first one, unless it is named."""
        found = (
            [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())] if self.grid else []
        )
        known = set(map(_as_written, found))
        found += [one for one in self.settings if _as_written(one) not in known]
        first = self.baseline
        return found if first not in found else [first, *(one for one in found if one != first)]

    def words_of(self, setting: Mapping[str, Value], port: int) -> list[str]:
        """The command line of one setting."""
        return list(_filled_words(self.words, {**setting, _PORT: port}))

    def url_of(self, setting: Mapping[str, Value], port: int) -> str:
        """Where its engine answers."""
        return f"http://127.0.0.1:{port}" if self.url is None else _filled(self.url, setting)

    def model_of(self, setting: Mapping[str, Value]) -> str | None:
        """Its model, None: the first that the engine lists."""
        return None if self.model is None else _filled(self.model, setting)

    def environment_of(self, setting: Mapping[str, Value], port: int) -> dict[str, str]:
        """What its engine has in the environment besides ours."""
        return {name: _filled(text, {**setting, _PORT: port}) for name, text in self.environment.items()}


def _as_written(setting: Values) -> str:
    """Tells 1 from true, which Python holds to be the same."""
    return repr(sorted(setting.items()))


def _texts(settings: Sequence[Values]) -> Iterator[str]:
    for setting in settings:
        for value in setting.values():
            yield from value if isinstance(value, list) else [str(value)]


def read_sweep(path: Path) -> Sweep:
    """Paths in it count from where it is. Raises `SweepInvalid`."""
    try:
        found = load_yaml(path.read_text(encoding="utf-8"))
        sweep = Sweep.model_validate(found)
    except OSError as error:
        raise SweepInvalid(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SweepInvalid(f"{path}: {error}") from None
    except ValidationError as error:
        raise SweepInvalid(f"{path}: {first_complaint(error)}") from None
    return _placed(sweep, path.parent)


def load_digests(load: Load) -> list[str]:
    """Of the files that the load reads: with others in their place figures are others. Raises `SweepInvalid`."""
    found = []
    for path in load.files:
        try:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise SweepInvalid(f"{path}: {error.strerror}") from None
    return found


def _placed(sweep: Sweep, folder: Path) -> Sweep:
    load = {name: folder / path for name in ("trace", "corpus") if (path := getattr(sweep.load, name)) is not None}
    ours = {name: folder / path for name in ("text", "questions") if (path := getattr(sweep.quality, name)) is not None}
    return sweep.model_copy(
        update={"load": sweep.load.model_copy(update=load), "quality": sweep.quality.model_copy(update=ours)}
    )


def _filled_words(words: Sequence[str], values: Mapping[str, Value]) -> Iterator[str]:
    for word in words:
        alone = _PLACE.fullmatch(word)
        value = values[alone[1]] if alone is not None else None
        if isinstance(value, list):
            yield from value
        elif value != "":
            yield os.path.expanduser(_filled(word, values))  # noqa: PTH111 - most words are no paths


def _filled(text: str, values: Mapping[str, Value]) -> str:
    return _PLACE.sub(lambda found: shown(values[found[1]]), text)
