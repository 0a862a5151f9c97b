"""YAML whose numbers and times stay text, so that they are read exactly, and in which a key stands once.

    0.1   2026-11-01   00042   yes      -->  text, for the reader of the file to make sense of
    (nothing)   ~   null                -->  None

YAML itself would read a price through a float, take the zeros off a registration number, and keep the last of two equal
keys.
"""

from collections.abc import Hashable
from typing import Any

import yaml

from billing.errors import YamlInvalid


class _TextLoader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} stands twice", node.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


def _text(loader: _TextLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


for _tag in ("int", "float", "bool", "timestamp"):
    _TextLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def read_exact(text: str) -> object:
    """Mappings, lists, texts and None. Raises `YamlInvalid`."""
    try:
        return yaml.load(text, _TextLoader)  # noqa: S506 - a SafeLoader that makes only text
    except yaml.YAMLError as error:
        raise YamlInvalid(str(error)) from None
    except RecursionError:
        raise YamlInvalid("it is nested too deeply") from None
