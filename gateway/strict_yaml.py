"""YAML in which a key stands once: two sections of one name are a mistake, where YAML itself would keep the last."""

from collections.abc import Hashable
from typing import Any

import yaml


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def load_yaml(text: str) -> object:
    """Plain data. Raises `yaml.YAMLError` for what is no YAML and for a key that stands twice in one mapping."""
    return yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader that takes less
