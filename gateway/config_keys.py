"""Which key of the configuration was meant by one that there is not. Pure."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import get_args

from pydantic import BaseModel


def meant(model: type[BaseModel], place: Sequence[str | int]) -> str | None:
    """The name most like the last of `place` among those that may stand there; None where none is like it.

    `place` is where pydantic found it: keys, and numbers of entries in lists. O(keys of one section).
    """
    *above, last = place
    sections = [model]
    for key in above:
        fields = [one.model_fields[key] for one in sections if key in one.model_fields]
        if fields:  # else it is a number in a list, a name in a mapping, or the kind of a section
            sections = [found for field in fields for found in _models_in(field.annotation)]
    names = {name for one in sections for name in one.model_fields}
    return next(iter(get_close_matches(str(last), sorted(names), n=1)), None)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The sections that a field may hold: itself one, or within a union, a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
