"""What can be said of the chart without helm: schema, configurations. `make helm-test` does the rest.

Alerts, recording rules and dashboards are looked at in tests/monitoring.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import ConfigInvalid, load_config
from tests.helm.policies import violations

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "prefixgate"
VALUES_SETS = sorted((CHART / "ci").glob("*-values.yaml"))
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": int | float}
KEYWORDS = {
    *("$schema", "title", "description", "type", "properties", "additionalProperties", "required", "items", "enum"),
    *("pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "uniqueItems", "propertyNames"),
    *("allOf", "if", "then", "not", "const"),
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("allOf", ())]
    inner += [schema[word] for word in ("items", "if", "then", "not", "propertyNames") if word in schema]
    if isinstance(more := schema.get("additionalProperties"), dict):
        inner.append(more)
    for each in inner:
        yield from subschemas(each)


def is_kind(value: object, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def refusals(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Why a value does not satisfy the schema: those of the words above that default values can break."""
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{where}: {value!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} is not like {schema['pattern']}"
    if is_kind(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where}: {value!r} is out of bounds"
    if isinstance(value, list):
        for each in value:
            yield from refusals(each, schema.get("items", {}), f"{where}[]")
    if isinstance(value, dict):
        yield from refusals_of_object(value, schema, where)


def refusals_of_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        known = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
        if known is False:
            yield f"{where}.{name} is not known"
        else:
            yield from refusals(each, known, f"{where}.{name}")


def test_the_schema_is_made_of_words_that_json_schema_has() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    for each in subschemas(schema):
        assert set(each) <= KEYWORDS
        kinds = each.get("type", [])
        assert ({kinds} if isinstance(kinds, str) else set(kinds)) <= set(KINDS)
        re.compile(each.get("pattern", ""))


def laid_over(below: Any, above: Any) -> Any:
    """As helm lays values over those of the chart: maps key by key, all else as a whole."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: laid_over(below.get(key), value) for key, value in above.items()}}


@pytest.mark.parametrize("path", [CHART / "values.yaml", *VALUES_SETS], ids=lambda path: path.stem)
def test_values_satisfy_the_schema(path: Path) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(refusals(laid_over(read(CHART / "values.yaml"), read(path)), schema, "values")) == []


def test_a_value_that_the_chart_does_not_have_is_refused() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    wrong = {"replica": 2, "service": {"port": 0}, "image": {"tag": 1}}
    said = "\n".join(refusals(wrong, schema, "values"))
    for part in ("replica is not known", "port: 0 is out of bounds", "tag: 1 is no string", "repository is missing"):
        assert part in said


def test_every_default_value_is_in_the_schema_and_every_word_of_the_schema_has_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(read(CHART / "values.yaml"))


@pytest.mark.parametrize("path", [CHART / "values.yaml", *VALUES_SETS], ids=lambda path: path.stem)
def test_the_configuration_of_values_is_one_that_the_gateway_takes(path: Path, tmp_path: Path) -> None:
    config = tmp_path / "prefixgate.yaml"
    config.write_text(yaml.safe_dump(read(path).get("config", {})))
    load_config(config, {}, {})


def test_the_defaults_of_draining_are_those_of_the_chart_where_values_name_none() -> None:
    limits = load_config(None, {}, {}).limits
    template = (CHART / "templates" / "_helpers.tpl").read_text()
    assert {name: float(text) for name, text in re.findall(r'dig "limits" "(\w+)" ([\d.]+)', template)} == {
        "drain_notice_s": limits.drain_notice_s,
        "close_idle_s": limits.close_idle_s,
        "drain_s": limits.drain_s,
    }


def test_a_variable_that_kubernetes_makes_of_a_service_is_refused_so_that_the_chart_turns_them_off() -> None:
    with pytest.raises(ConfigInvalid, match="PREFIXGATE_PORT"):
        load_config(None, {"PREFIXGATE_PORT": "tcp://10.96.0.7:8080"}, {})


@pytest.mark.parametrize(
    "path", sorted((CHART.parents[1] / "tests" / "helm" / "golden").iterdir()), ids=lambda path: path.stem
)
def test_the_renders_that_are_kept_keep_the_rules(path: Path) -> None:
    assert f"{path.stem}-values" in {values.stem for values in VALUES_SETS}
    assert violations(list(yaml.load_all(path.read_text(), yaml.CSafeLoader))) == []
