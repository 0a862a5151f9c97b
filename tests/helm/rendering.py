"""The chart as helm renders it: `make helm-test`; HELM_UPDATE=1 writes the golden renders anew.

Its name keeps it out of the suite, which needs no helm.
"""

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

from gateway.config import load_config

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHART = ROOT / "helm" / "prefixgate"
VALUES_SETS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
TOOLS = Path(os.environ["HELM_DIR"])
OLDEST, NEWEST = "1.27", "1.37"
CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "HTTPRoute"}
"""Kinds that Kubernetes has no schema of: they come with the operator of Prometheus, and with the Gateway API."""
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


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    return helm("template", "gate", str(CHART), "--namespace", "llm", *arguments)


@cache
def rendered(name: str) -> list[Document]:
    done = template("--values", str(CHART / "ci" / f"{name}-values.yaml"))
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    return sorted(documents, key=lambda each: (each["kind"], each["metadata"].get("namespace", ""), name_of(each)))


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def of_kind(name: str, kind: str) -> list[Document]:
    return [document for document in rendered(name) if document["kind"] == kind]


def pods(name: str) -> Iterator[Document]:
    for document in rendered(name):
        if document["kind"] == "Pod":
            yield document
        elif "template" in document.get("spec", {}):
            yield document["spec"]["template"]


def gateway_pod(name: str) -> Document:
    (deployment,) = of_kind(name, "Deployment")
    pod: Document = deployment["spec"]["template"]["spec"]
    return pod


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


@each_set
def test_lint_has_nothing_to_say(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / f"{name}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@each_set
def test_it_is_rendered_as_before(name: str) -> None:
    golden = HERE / "golden" / f"{name}.yaml"
    text = yaml.safe_dump_all(rendered(name), width=120)
    if "HELM_UPDATE" in os.environ:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert list(yaml.safe_load_all(golden.read_text())) == list(yaml.safe_load_all(text))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@each_set
def test_kubernetes_has_every_field(name: str, version: str) -> None:
    validating = tool("kubernetes_validate")
    for document in rendered(name):
        if document["kind"] not in CUSTOM:
            validating.validate(document, version, strict=True)


@each_set
def test_the_gateway_takes_its_configuration(name: str, tmp_path: Path) -> None:
    (config_map,) = of_kind(name, "ConfigMap")
    file = tmp_path / "prefixgate.yaml"
    file.write_text(config_map["data"]["prefixgate.yaml"])
    given = {key: text for key, text in environment(name).items() if key.startswith("PREFIXGATE_")}
    config = load_config(file, given, {})
    (deployment,) = of_kind(name, "Deployment")
    several = deployment["spec"].get("replicas") != 1
    assert not several or (config.ledger.url and config.index.redis_url)
    limits = config.limits
    stopping = limits.drain_notice_s + limits.close_idle_s + limits.drain_s
    assert stopping + 15 <= gateway_pod(name)["terminationGracePeriodSeconds"] < stopping + 16
    assert gateway_pod(name)["containers"][0]["ports"][0]["containerPort"] == config.listen.port


def memory_bytes(pod: Document) -> int:
    amount = str(pod["containers"][0]["resources"]["limits"]["memory"])
    return int(amount.removesuffix("Gi")) * GiB


@each_set
def test_what_may_be_in_memory_fits_into_it(name: str, tmp_path: Path) -> None:
    (config_map,) = of_kind(name, "ConfigMap")
    file = tmp_path / "prefixgate.yaml"
    file.write_text(config_map["data"]["prefixgate.yaml"])
    config = load_config(file, environment(name) if name == "external-stores" else {}, {})
    private = 0 if config.index.redis_url else config.index.max_bytes
    assert private + config.workers * (config.limits.buffered_bytes + GiB // 2) <= memory_bytes(gateway_pod(name))
    for valkey in of_kind(name, "StatefulSet"):
        pod = valkey["spec"]["template"]["spec"]
        arguments = pod["containers"][0]["args"]
        most = int(arguments[arguments.index("--maxmemory") + 1].removesuffix("gb")) * GiB
        assert config.index.max_bytes < most < memory_bytes(pod)


@each_set
def test_every_pod_is_allowed_by_the_pod_security_standard_restricted(name: str) -> None:
    for pod in pods(name):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["enableServiceLinks"] is False
        allowed = {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
        assert all(set(volume) - {"name"} <= allowed for volume in spec.get("volumes", ()))
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


@each_set
def test_what_is_named_is_there(name: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(name)]
    for service in of_kind(name, "Service"):
        assert sum(service["spec"]["selector"].items() <= each.items() for each in labels) == 1
    for document in (*of_kind(name, "PodDisruptionBudget"), *of_kind(name, "PodMonitor")):
        assert sum(document["spec"]["selector"]["matchLabels"].items() <= each.items() for each in labels) == 1
    services = [service["metadata"]["labels"] for service in of_kind(name, "Service")]
    for monitor in of_kind(name, "ServiceMonitor"):
        assert sum(monitor["spec"]["selector"]["matchLabels"].items() <= each.items() for each in services) == 1
    for document in (*of_kind(name, "Deployment"), *of_kind(name, "StatefulSet")):
        spec = document["spec"]["template"]["spec"]
        claims = [claim["metadata"] for claim in document["spec"].get("volumeClaimTemplates", ())]
        volumes = {each["name"] for each in (*spec.get("volumes", ()), *claims)}
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} <= volumes
    accounts = {name_of(account) for account in of_kind(name, "ServiceAccount")}
    assert gateway_pod(name)["serviceAccountName"] in accounts


def test_who_finds_endpoints_by_kubernetes_may_list_and_watch_them_and_nothing_else() -> None:
    for name in VALUES_SETS:
        discovers = "discovery:\n  kubernetes:" in of_kind(name, "ConfigMap")[0]["data"]["prefixgate.yaml"]
        discovers |= bool(of_kind(name, "Role"))
        assert gateway_pod(name)["automountServiceAccountToken"] is discovers
        for role in of_kind(name, "Role"):
            (rule,) = role["rules"]
            assert rule["resources"] == ["endpointslices"]
            assert rule["verbs"] == ["list", "watch"]
    assert {role["metadata"]["namespace"] for role in of_kind("pd-pools", "Role")} == {"inference"}
    assert {role["metadata"]["namespace"] for role in of_kind("default", "Role")} == {"llm"}


def test_alerts_of_a_rule_look_at_the_namespace_of_the_release() -> None:
    (rule,) = of_kind("ha", "PrometheusRule")
    alerts, recordings = (group["rules"] for group in rule["spec"]["groups"])
    source = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert {each["alert"] for each in source} - {each["alert"] for each in alerts} == {"PrefixgateModelArmStopped"}
    assert all('namespace="llm"' in each["expr"] for each in (*alerts, *recordings))
    assert {each["annotations"]["runbook_url"].partition("#")[0] for each in alerts} == {"docs/runbook.md"}
    parser = tool("promql_parser")
    for each in alerts:
        parser.parse(each["expr"])
    with pytest.raises(ValueError, match="brackets"):
        parser.parse("sum(rate(x[5m)) > 0")


def test_dashboards_are_a_config_map_that_grafanas_sidecar_finds() -> None:
    done = template("--set", "monitoring.dashboards.enabled=true", "--show-only", "templates/monitoring.yaml")
    assert done.returncode == 0, done.stderr
    config_map = yaml.safe_load(done.stdout)
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = sorted((CHART / "files" / "dashboards").iterdir())
    assert config_map["data"] == {path.name: path.read_text() for path in files}
    assert len(done.stdout) < 1_000_000  # what a ConfigMap may be


STORES = ("--set", "secrets.postgresUrl=postgresql://g@db/l", "--set", "secrets.redisUrl=redis://r")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "replicas=2"), "several replicas need one ledger"),
        (("--set", "replicas=2", *STORES[:2]), "several replicas share index and limits"),
        (("--set", "autoscaling.enabled=true"), "several replicas need one ledger"),
        (("--set", "replicas=2", "--set", "persistence.enabled=true", *STORES), "a volume of one pod"),
        (("--set", "valkey.enabled=true", *STORES), "choose one"),
        (("--set", "replica=2"), "replica"),
        (("--set", "ingress.enabled=true"), "hosts"),
        (("--set", "httpRoute.enabled=true"), "parentRefs"),
        (("--set", "secrets.redisUrl=http://r"), "redisUrl"),
        (("--set", "config.limits.drain_s=long"), "drain_s"),
    ],
)
def test_values_that_cannot_work_are_refused(arguments: tuple[str, ...], said: str) -> None:
    done = template(*arguments)
    assert done.returncode != 0
    assert said in done.stderr


def test_several_replicas_with_stores_of_their_own_are_rendered() -> None:
    assert template("--set", "replicas=2", *STORES).returncode == 0


def test_a_gateway_without_draining_times_in_its_values_has_those_of_the_program() -> None:
    done = template("--set", "config.limits=null", "--show-only", "templates/deployment.yaml")
    assert done.returncode == 0, done.stderr
    limits = load_config(None, {}, {}).limits
    seconds = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert seconds == limits.drain_notice_s + limits.close_idle_s + limits.drain_s + 15
