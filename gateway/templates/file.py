"""A template's file: one version of one template, in YAML (or JSON, which is YAML).

    name: support
    version: 3
    syntax: jinja                      # or format, literal
    reorder: consented                 # or off, the default
    tenants: [acme]                    # absent: all
    messages:
      - {role: system, content: "..."}
      - {slot: history}                # a variable that holds messages
      - {role: user, content: "{{ question }}"}
    slots:
      now: {volatility: per-request}
      tone: {volatility: per-tenant, default: friendly}
    samples: [{now: "...", history: [], question: "..."}]

Unknown keys are errors, and so is a slot that no message has: a mark that is misspelt would mark nothing.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gateway.config_sections import NAME_PATTERN as TENANT_PATTERN
from gateway.strict_yaml import complaint_of, load_yaml
from gateway.templates.types import NAME_PATTERN, VERSION_PATTERN, KeptTemplate
from prefix_index.layout import (
    Mark,
    Renderer,
    Source,
    Syntax,
    TemplateInvalid,
    ordered,
    read_template,
    volatility_of,
)

MOST_BYTES: Final = 1024 * 1024
MOST_VALUES: Final = 100_000
_BARE_NUMBER: Final = "write it in quotes: as a number, 1.10 would be 1.1"


class TemplateFileInvalid(Exception):
    """A file that holds no template; the text says what is wrong, and in which."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Slot(_Entry):
    volatility: Literal["fixed", "per-tenant", "per-session", "per-request"] | None = None
    pinned: bool = False
    reference: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    default: Any = None

    def mark(self) -> Mark:
        """As the compiler takes it."""
        return Mark(None if self.volatility is None else volatility_of(self.volatility), self.pinned, self.reference)


class _Message(_Entry):
    role: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")] | None = None
    content: str | None = None
    slot: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "_Message":
        if (self.slot is None) == (self.role is None or self.content is None) or (self.slot and self.content):
            raise ValueError("a message has a role and a content, or is a slot of messages")
        return self

    def source(self) -> Source:
        """As the compiler takes it."""
        return Source(slot=self.slot) if self.slot is not None else Source(self.content or "", self.role or "user")


class _File(_Entry):
    name: Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
    version: Annotated[str, Field(pattern=f"^{VERSION_PATTERN}$")]
    syntax: Syntax = Syntax.JINJA
    reorder: Literal["off", "consented"] = "off"
    tenants: list[Annotated[str, Field(pattern=TENANT_PATTERN)]] | None = None
    messages: Annotated[list[_Message], Field(min_length=1, max_length=256)] | None = None
    text: str | None = None
    slots: dict[str, _Slot] = Field(default_factory=dict)
    samples: Annotated[list[dict[str, Any]], Field(max_length=1000)] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _version_as_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("version"), float):
            raise ValueError(f"version: {_BARE_NUMBER}")  # noqa: TRY004 - as pydantic wants it
        if isinstance(data, dict) and type(data.get("version")) is int:
            return {**data, "version": str(data["version"])}
        return data

    @model_validator(mode="after")
    def _messages_or_text(self) -> "_File":
        if (self.messages is None) == (self.text is None):
            raise ValueError("a template has messages, or a text that is the message of a user")
        return self

    def sources(self) -> list[Source]:
        """The messages, as the compiler takes them."""
        return [one.source() for one in self.messages] if self.messages is not None else [Source(self.text or "")]

    def defaults(self) -> dict[str, object]:
        """Of the slots that have one; null is one."""
        return {name: slot.default for name, slot in self.slots.items() if "default" in slot.model_fields_set}

    def digest(self) -> str:
        """Of what decides what is rendered; tenants and samples may change."""
        said = self.model_dump(mode="json", exclude={"name", "version", "tenants", "samples"})
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def read_kept(text: str, where: str, named: Mapping[str, str] | None = None) -> KeptTemplate:
    """The template of a file's text. `named` gives name and version where the text may leave them out.

    Raises `TemplateFileInvalid`, which begins with `where`. Linear in the text, and some milliseconds.
    """
    if len(text) > MOST_BYTES:
        raise TemplateFileInvalid(f"{where}: longer than {MOST_BYTES:,} characters")
    try:
        data = load_yaml(text)
        if not isinstance(data, dict):
            raise TemplateFileInvalid(f"{where}: it is no mapping")
        if _is_huge(data):
            raise TemplateFileInvalid(
                f"{where}: with its aliases written out it holds more than {MOST_VALUES:,} values"
            )
        return _kept(_File.model_validate({**(named or {}), **data}))
    except ValidationError as error:
        raise TemplateFileInvalid(f"{where}: {'; '.join(_complaint(dict(one)) for one in error.errors())}") from None
    except RecursionError:
        raise TemplateFileInvalid(f"{where}: it is nested too deeply") from None
    except UnicodeError:
        raise TemplateFileInvalid(f"{where}: it holds what is no text in UTF-8") from None
    except (yaml.YAMLError, TemplateInvalid, TypeError, ValueError) as error:
        raise TemplateFileInvalid(f"{where}: {error}") from None


def read_kept_file(path: Path) -> KeptTemplate:
    """The template in a file. Raises `TemplateFileInvalid`, also where it cannot be read."""
    try:
        if not path.is_file():  # to open a pipe would wait for who writes into it
            raise TemplateFileInvalid(f"{path.name}: it is no file")
        with path.open(encoding="utf-8") as file:
            return read_kept(file.read(MOST_BYTES + 1), path.name)
    except UnicodeDecodeError:
        raise TemplateFileInvalid(f"{path.name}: it is not UTF-8") from None
    except OSError as error:
        raise TemplateFileInvalid(f"{path.name}: {error.strerror}") from None


def named_text(text: str, named: Mapping[str, str]) -> str:
    """The text of a file that names its template, made of one that may not. Raises `TemplateFileInvalid`.

    Lines before the text where that will do, so that remarks and layout stay; else all of it as JSON.
    """
    where = "@".join(named.values())
    read_kept(text, where, named)
    data = load_yaml(text)
    assert isinstance(data, dict)
    head = "".join(f"{what}: {said!r}\n" for what, said in named.items() if what not in data)
    for candidate in (head + text, msgspec.json.encode({**named, **data}).decode()):
        with suppress(TemplateFileInvalid):
            if read_kept(candidate, where).digest == read_kept(text, where, named).digest:
                return candidate
    raise TemplateFileInvalid(f"{where}: it cannot be written as a file")


def _is_huge(data: object) -> bool:
    """Whether there are too many values in plain data, those that an alias repeats counted each time; O(those)."""
    waiting, seen = [data], 0
    while waiting and seen <= MOST_VALUES:
        one = waiting.pop()
        seen += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return seen + len(waiting) > MOST_VALUES


def _kept(file: _File) -> KeptTemplate:
    marks = {name: slot.mark() for name, slot in file.slots.items()}
    template = read_template(file.sources(), file.syntax, marks)
    strangers = sorted(file.slots.keys() - template.names)
    if strangers:
        raise TemplateInvalid(f"slots: no message has {', '.join(strangers)}")
    layout = ordered(template)
    consented = file.reorder == "consented"
    return KeptTemplate(
        name=file.name,
        version=file.version,
        layout=layout,
        renderer=Renderer(layout.after if consented else layout.before, file.defaults()),
        digest=file.digest(),
        chars=sum(len(message.source) for message in template.messages),
        reordered=consented and bool(layout.moves),
        tenants=None if file.tenants is None else frozenset(file.tenants),
        defaults=file.defaults(),
        samples=tuple(file.samples),
    )


def _complaint(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {complaint_of(error)}" if where else complaint_of(error)
