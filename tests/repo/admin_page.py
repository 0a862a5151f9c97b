"""The reference of docs/admin-api.md, made out of the OpenAPI document: python -m tests.repo.admin_page writes it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.repo.test_docs import admin_openapi

PAGE: Final = Path(__file__).parents[2] / "docs" / "admin-api.md"
_BEGIN: Final = "<!-- made by tests/repo/admin_page.py: from here on nothing is written by hand -->\n"
_OF_EVERY_PATH: Final = {"422"}
"""Answers that the part for people describes once."""
_SAID_BY_DEFAULT: Final = "Successful Response"

Json = Mapping[str, Any]


def written() -> str:
    """The page as it is."""
    return PAGE.read_text(encoding="utf-8")


def made() -> str:
    """The page as it should be: its part for people, and every path and shape of the document."""
    document = admin_openapi()
    lines = (*_paths(document["paths"]), *_shapes(document["components"]["schemas"]))
    return written().partition(_BEGIN)[0] + _BEGIN + "\n" + "\n".join(lines).rstrip() + "\n"


def _paths(paths: Mapping[str, Json]) -> Iterator[str]:
    yield "## Paths\n"
    for path, method, operation in sorted(
        (path, method, one) for path, ways in paths.items() for method, one in ways.items()
    ):
        yield f"### `{method.upper()} {path}`\n"
        yield f"{_flat(operation.get('description') or operation['summary'])}\n"
        yield from _parameters(operation.get("parameters", ()))
        if "requestBody" in operation:
            kinds = operation["requestBody"]["content"]
            yield (
                "Body: " + "; ".join(f"`{kind}`, {_type(one.get('schema', {}))}" for kind, one in kinds.items()) + "\n"
            )
        yield from _answers(operation["responses"])


def _parameters(parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield "| parameter | in | type | default | |"
    yield "|---|---|---|---|---|"
    for one in parameters:
        shape = one.get("schema", {})
        default = "required" if one.get("required") else _default(shape)
        meaning = _flat(one.get("description") or shape.get("description") or "")
        kind = _type(shape).removesuffix(" or null")
        yield f"| `{one['name']}` | {one['in']} | {kind} | {default} | {meaning} |"
    yield ""


def _answers(responses: Mapping[str, Json]) -> Iterator[str]:
    answers = []
    for status, one in sorted(responses.items()):
        shapes = dict.fromkeys(_type(kind.get("schema", {})) for kind in one.get("content", {}).values())
        said = one.get("description", "")
        words = [*shapes, *([] if said == _SAID_BY_DEFAULT else [_flat(said).rstrip(".")])]
        if status not in _OF_EVERY_PATH:
            answers.append(f"**{status}** {', '.join(words)}")
    yield "; ".join(answers) + ".\n"


def _shapes(schemas: Mapping[str, Json]) -> Iterator[str]:
    yield "## Shapes\n"
    for name, shape in sorted(schemas.items()):
        yield f"### {name}\n"
        if shape.get("description"):
            yield f"{_flat(shape['description'])}\n"
        if "enum" in shape:
            yield ", ".join(f"`{value}`" for value in shape["enum"]) + "\n"
        if fields := shape.get("properties"):
            yield "| field | type | |"
            yield "|---|---|---|"
            for field, kind in fields.items():
                optional = "" if field in shape.get("required", ()) else "may be absent. "
                yield f"| `{field}` | {_type(kind)} | {optional}{_flat(kind.get('description', ''))} |"
            yield ""


def _type(shape: Json) -> str:
    if "$ref" in shape:
        name = str(shape["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := shape.get("anyOf") or shape.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(one) for one in choices))
    if "enum" in shape:
        return " or ".join(f"`{value}`" for value in shape["enum"])
    if shape.get("type") == "array":
        return f"list of {_type(shape.get('items', {}))}"
    if shape.get("type") == "object" and isinstance(shape.get("additionalProperties"), dict):
        return f"map to {_type(shape['additionalProperties'])}"
    return str(shape.get("type", "any")) + _range(shape)


def _range(shape: Json) -> str:
    least, most = shape.get("minimum"), shape.get("maximum")
    return f", {least} to {most}" if least is not None and most is not None else ""


def _default(shape: Json) -> str:
    default = shape.get("default")
    return "none" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
