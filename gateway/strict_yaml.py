"""YAML that surprises nobody: a key stands once, and on, off, yes and no are words.

Two sections of one name are a mistake, where YAML itself would keep the last. `{mode: off}` names a mode, as in YAML
1.2, where version 1.1 would read false.
"""

import re
from collections.abc import Hashable, Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

_BOOL: Final = "tag:yaml.org,2002:bool"


class _StrictLoader(yaml.SafeLoader):
    # A table of this class's own: the one it inherits belongs to all loaders.
    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's name and shape
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_StrictLoader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def complaint_of(error: Mapping[str, object]) -> str:
    """What is wrong with one key of such a file, out of one of pydantic's errors: never its value."""
    known = {"extra_forbidden": "unknown key", "model_type": "keys with their values belong here, as in {key: value}"}
    return known.get(str(error["type"])) or str(error["msg"]).removeprefix("Value error, ")


def first_complaint(error: ValidationError) -> str:
    """The first key of such a file that is wrong, and what is wrong with it."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    return f"{key}: {complaint_of(first)}" if key else complaint_of(first)


def load_yaml(text: str) -> object:
    """Plain data. Raises `yaml.YAMLError` for what is no YAML, for a key that stands twice in one mapping, and for what
    looks like a date or a number and is none."""
    try:
        return yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader that takes less
    except ValueError as error:
        raise yaml.YAMLError(f"a value that cannot be read: {error}") from error
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
