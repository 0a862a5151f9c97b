"""What helm makes of the chart, for the tests beside: `make helm-test`, which brings helm."""

import base64
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHART = ROOT / "helm" / "prefixgate"
VALUES_SETS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
TOOLS = Path(os.environ.get("HELM_DIR", "the folder of make helm-test"))
CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "HTTPRoute", "InferencePool"}
"""Kinds that Kubernetes has no schema of: they come with the operator of Prometheus, and with the Gateway API."""
WORKLOADS = ("Deployment", "StatefulSet", "Job")
GiB = 1024**3
Document = dict[str, Any]
each_set = pytest.mark.parametrize("name", VALUES_SETS)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / "bin" / "helm", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def tool(module: str) -> ModuleType:
    """A package that was installed beside helm; what the environment has itself goes before."""
    if str(TOOLS / "lib") not in sys.path:
        sys.path.append(str(TOOLS / "lib"))
    return importlib.import_module(module)


def validator() -> ModuleType:
    """That of Kubernetes' schemas. It reads a file of megabytes for each object; here once."""
    validating = tool("kubernetes_validate")
    inner = importlib.import_module("kubernetes_validate.utils")
    if not hasattr(inner.schema_contents, "cache_info"):
        setattr(inner, "schema_contents", cache(inner.schema_contents))  # noqa: B010 - a module without types
    return validating


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    return helm("template", "gate", str(CHART), "--namespace", "llm", *arguments)


@cache
def rendered(name: str) -> list[Document]:
    return documents(template("--values", str(CHART / "ci" / f"{name}-values.yaml")))


def documents(done: subprocess.CompletedProcess[str]) -> list[Document]:
    """The objects that were rendered, by kind and name. Fails where helm refused."""
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"].get("namespace", ""), name_of(each)))


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def of_kind(name: str, *kinds: str) -> list[Document]:
    return [document for document in rendered(name) if document["kind"] in kinds]


def pod_templates(found: list[Document]) -> Iterator[tuple[Document, Document]]:
    """Each object that makes pods, and the pod it makes."""
    for document in found:
        if document["kind"] == "Pod":
            yield document, document
        elif document["kind"] in WORKLOADS:
            yield document, document["spec"]["template"]


def part(found: list[Document], component: str) -> Document:
    """What makes the pods of a part of the release."""
    (workload,) = (
        document
        for document, pod in pod_templates(found)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
    )
    return workload


def gateway_pod(name: str) -> Document:
    pod: Document = part(rendered(name), "gateway")["spec"]["template"]["spec"]
    return pod


def configuration(name: str, component: str = "gateway") -> str:
    """Text of the prefixgate.yaml that the pods of a part read."""
    volumes = part(rendered(name), component)["spec"]["template"]["spec"]["volumes"]
    (wanted,) = (each["configMap"]["name"] for each in volumes if each["name"] == "config")
    (text,) = (each["data"]["prefixgate.yaml"] for each in of_kind(name, "ConfigMap") if name_of(each) == wanted)
    return str(text)


def environment(name: str) -> dict[str, str]:
    """What the gateway would be given; texts of a Secret that is not the chart's are made up."""
    own = {name_of(secret): secret["data"] for secret in of_kind(name, "Secret")}
    made_up = {"redis-url": "redis+sentinel://a,b/main", "postgres-url": "postgresql://gate@db/ledger"}
    variables = {}
    for each in gateway_pod(name)["containers"][0]["env"]:
        if "value" in each:
            variables[each["name"]] = each["value"]
            continue
        place = each["valueFrom"]["secretKeyRef"]
        stored = own.get(place["name"])
        text = made_up.get(place["key"], "x") if stored is None else base64.b64decode(stored[place["key"]]).decode()
        variables[each["name"]] = text
    return variables
