"""Any values that the schema allows are rendered to objects that Kubernetes takes, or refused with what to do: `make
helm-test`. HELM_EXAMPLES says how many are tried; it is the same ones in every run, unless HELM_SEED is another number.

Values are made from the schema itself, so that no key of it is forgotten: of every section some keys, with texts that
YAML or Go's templates could take for something else.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.helm.policies import names, open_secrets, references
from tests.helm.renders import CHART, CUSTOM, TOOLS, Document, documents, helm, validator

EXAMPLES = int(os.environ.get("HELM_EXAMPLES", "100"))
SEED = int(os.environ.get("HELM_SEED", "1"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ODD = [
    "true",
    "null",
    "~",
    "1",
    "0x10",
    "1e3",
    "no",
    "a: b",
    "# c",
    "- d",
    "{{ e }}",
    "'",
    '"',
    "*f",
    "&g",
    "%h",
    "é",
    " ",
]
"""Texts that are something else where a template forgets to quote them."""
NAMES = ["a", "true", "null", "0", "123", "1e3", "n", "a-b", "x" * 53, "prefixgate", "a" * 30 + "-" + "b" * 20]
ANNOTATIONS = st.dictionaries(st.sampled_from(["a", "example.com/b", "true", "1"]), st.sampled_from(ODD), max_size=2)
LABELS = st.dictionaries(
    st.sampled_from(["a", "example.com/b", "true", "1"]), st.sampled_from(["", "true", "1", "1e3", "a.b"]), max_size=2
)
QUANTITY = st.sampled_from(["1", "500m", "1Gi", "1.5", 1, 2.5])
FREE: dict[str, SearchStrategy[Any]] = {
    # What the schema leaves to Kubernetes, or to the gateway: things that these take.
    "affinity": st.sampled_from([{}, {"podAntiAffinity": {}}]),
    "annotations": ANNOTATIONS,
    "podAnnotations": ANNOTATIONS,
    "podLabels": LABELS,
    "labels": LABELS,
    "matchLabels": LABELS,
    "nodeSelector": LABELS,
    "tolerations": st.sampled_from([[], [{"key": "gpu", "operator": "Exists"}]]),
    "podSecurityContext": st.sampled_from([{}, {"runAsNonRoot": True}, {"runAsNonRoot": True, "runAsUser": 1000}]),
    "requests": st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITY, max_size=2),
    "limits": st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITY, max_size=2),
    "claims": st.just([]),
    "extraEnv": st.lists(
        st.sampled_from([{"name": "A", "value": "true"}, {"name": "B", "value": "{{ x }}"}]), unique_by=str
    ),
    "extraVolumes": st.sampled_from([[], [{"name": "more", "emptyDir": {}}]]),
    "extraVolumeMounts": st.just([]),
    "metrics": st.just([]),
    "from": st.sampled_from([[], [{"podSelector": {}}], [{"ipBlock": {"cidr": "10.0.0.0/8"}}]]),
    "to": st.sampled_from([[], [{"ports": [{"port": 443, "protocol": "TCP"}]}]]),
    "tls": st.sampled_from([[], [{"hosts": ["a.example"], "secretName": "t"}]]),
    "parentRefs": st.sampled_from([[], [{"name": "public"}]]),
    "files": st.dictionaries(
        st.sampled_from(["prices.yaml", "1", "true", "a.b"]), st.sampled_from([*ODD, "a\nb: c\n"]), max_size=2
    ),
    "maxMemory": st.sampled_from(["4gb", "8192mb", "9663676416", "1kb"]),
    "maxUnavailable": st.sampled_from([0, 1, "50%"]),
    "global": st.just({}),
}
FREE |= dict.fromkeys(["metricsFrom", "eppFrom"], FREE["from"])
CONFIG_PARTS: dict[str, dict[str, list[Any]]] = {
    "limits": {"drain_s": [0, 0.5, 30, 86400], "drain_notice_s": [0, 1]},
    "listen": {"port": [1, 8080, 65535], "host": ["::", "0.0.0.0"]},
    "index": {"redis_url": ["redis://r", "redis://u:p@r"]},
    "ledger": {"url": ["postgresql://u@r/l", "postgresql://u:p@r/l"], "on_ledger_down": ["spool", "deny"]},
    "ui": {"path": ["/ui", "/a/b"]},
    "discovery": {"kubernetes": [[], [{"service": "a"}, {"service": "b", "namespace": "123"}]]},
}
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "prices_file": st.sampled_from(ODD),
        **{
            part: st.fixed_dictionaries({}, optional={key: st.sampled_from(some) for key, some in keys.items()})
            for part, keys in CONFIG_PARTS.items()
        },
    },
)


def like(pattern: str) -> SearchStrategy[str]:
    """Texts of a pattern: odd ones of the lists above where the pattern lets them through, and any."""
    known = [text for text in (*NAMES, *ODD, "") if re.search(pattern, text)]
    free = st.from_regex(pattern, fullmatch=True, alphabet=st.characters(min_codepoint=32, max_codepoint=126))
    return st.one_of(st.sampled_from(known), free) if known else free


def values_of(schema: Document, name: str = "", *, has_defaults: bool = True) -> SearchStrategy[Any]:
    """Values that a schema allows; of what has defaults in values.yaml also only some keys."""
    if name == "config":
        return CONFIG
    if name in FREE:
        return FREE[name]
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            inner = {key: values_of(each, key) for key, each in schema.get("properties", {}).items()}
            whole = {key: inner.pop(key) for key in schema.get("required", ()) if not has_defaults}
            return st.fixed_dictionaries(whole, optional=inner)
        case "array":
            least, several = schema.get("minItems", 0), schema.get("uniqueItems", False)
            items = values_of(schema["items"], name, has_defaults=False)
            return st.lists(items, min_size=least, max_size=3, unique_by=str if several else None)
        case "boolean":
            return st.booleans()
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", 10**6)
            return st.one_of(st.sampled_from([least, most]), st.integers(least, most))
        case "string":
            most = schema.get("maxLength", 300)
            texts = like(schema["pattern"]) if "pattern" in schema else st.sampled_from([*ODD, ""])
            return texts.filter(lambda text: schema.get("minLength", 0) <= len(text) <= most and text != "latest")
        case _:
            raise AssertionError(f"{name}: the test knows no values of {schema}")


ANY_VALUES = values_of(SCHEMA)
RELEASES = st.sampled_from([*NAMES, "my.release", "1.2", "-".join(["a"] * 26)])


def taken_away(values: Any, path: tuple[str, ...]) -> Any:
    """The values with a null at a place."""
    if not path:
        return None
    below = values.get(path[0]) if isinstance(values, dict) else None
    return {**(values if isinstance(values, dict) else {}), path[0]: taken_away(below or {}, path[1:])}


def places(schema: Document, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = schema.get("properties", {})
    return [(*before, key) for key in inner] + [p for key, each in inner.items() for p in places(each, (*before, key))]


def render(release: str, values: Document, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))  # which is YAML too, and quotes every text
    return helm("template", release, str(CHART), "--namespace", "123", "--values", str(file))


def hold(done: subprocess.CompletedProcess[str]) -> None:
    """What was rendered is what Kubernetes takes; what was refused was refused by the chart, in words."""
    if done.returncode != 0:
        assert says_what_to_do(done.stderr), done.stderr
        return
    found = documents(done)
    validating = validator()
    for document in found:
        if document["kind"] not in CUSTOM:
            validating.validate(document, "1.37", strict=True)
    assert [*names(found), *references(found), *open_secrets(found)] == []


def says_what_to_do(refusal: str) -> bool:
    """Of the schema, with the place; or of `_refuse.tpl`. Not an error in a template, which tells a user nothing."""
    by_schema = "don't meet the specifications of the schema" in refusal and re.search(r"at '[^']*'", refusal)
    by_chart = re.search(r"execution error at \([^)]*\): .{20,}", refusal)
    return bool(by_schema or by_chart)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("values")


@pytest.mark.timeout(3600)
@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(release=RELEASES, values=ANY_VALUES)
def test_any_values_become_objects_or_are_refused_in_words(release: str, values: Document, folder: Path) -> None:
    hold(render(release, values, folder))


@pytest.mark.parametrize("path", places(SCHEMA), ids=".".join)
def test_a_default_that_is_taken_away_is_not_missed_or_its_place_is_named(path: tuple[str, ...], folder: Path) -> None:
    hold(render("gate", taken_away(EVERYTHING, path), folder))


EVERYTHING: Document = {
    **yaml.safe_load((CHART / "ci" / "bundled-values.yaml").read_text()),
    "monitoring": {each: {"enabled": True} for each in ("podMonitor", "rules", "dashboards")},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
    "autoscaling": {"enabled": True, "inFlightPerPod": 100},
    "persistence": {"enabled": True},
}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": "2"}, "got string, want integer"),
        ({"replicas": None}, "replicas"),
        ({"service": {"port": "8080"}}, "got string, want integer"),
        ({"podLabels": {"a": 1}}, "got number, want string"),
        ({"podAnnotations": {"a": True}}, "got boolean, want string"),
        ({"valkey": []}, "got array, want object"),
        ({"persistence": {"size": 10}}, "got number, want string"),
        ({"image": {"tag": 1.0}}, "got number, want string"),
        ({"secrets": {"adminToken": 123}}, "got number, want string"),
        ({"ingress": {"hosts": ["a b"]}}, "does not match pattern"),
        ({"config": []}, "got array, want object"),
        ({"config": {"index": "redis://r"}}, "got string, want object"),
    ],
)
def test_a_value_of_another_kind_is_refused_at_its_place(values: Document, said: str, folder: Path) -> None:
    done = render("gate", values, folder)
    assert done.returncode != 0
    assert says_what_to_do(done.stderr)
    assert said in done.stderr


def test_an_error_in_a_template_is_no_refusal_in_words() -> None:
    assert TOOLS.is_dir()
    assert not says_what_to_do("Error: template: prefixgate/templates/a.yaml:1:2: executing: nil pointer evaluating")
