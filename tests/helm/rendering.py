"""The chart as helm renders it: `make helm-test`; HELM_UPDATE=1 writes the golden renders anew.

Its name keeps it out of the suite, which needs no helm.
"""

import os
from pathlib import Path

import pytest
import yaml

from gateway.config import load_config
from gateway.epp.command import check_epp
from tests.helm.renders import (
    CHART,
    CUSTOM,
    HERE,
    VALUES_SETS,
    Document,
    GiB,
    configuration,
    documents,
    each_set,
    environment,
    gateway_pod,
    helm,
    of_kind,
    part,
    rendered,
    template,
    tool,
    validator,
)

VERSIONS = [f"1.{minor}" for minor in range(27, 38)]


@each_set
def test_lint_has_nothing_to_say(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / f"{name}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@each_set
def test_it_is_rendered_as_before(name: str) -> None:
    golden = HERE / "golden" / f"{name}.yaml"
    without_dashboards = [
        each for each in rendered(name) if "grafana_dashboard" not in each["metadata"].get("labels", {})
    ]
    text = yaml.safe_dump_all(without_dashboards, width=120)
    if "HELM_UPDATE" in os.environ:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert list(yaml.safe_load_all(golden.read_text())) == list(yaml.safe_load_all(text))


@pytest.mark.parametrize("version", VERSIONS)
@each_set
def test_kubernetes_has_every_field(name: str, version: str) -> None:
    validating = validator()
    for document in rendered(name):
        if document["kind"] not in CUSTOM:
            validating.validate(document, version, strict=True)


@each_set
def test_the_gateway_takes_its_configuration(name: str, tmp_path: Path) -> None:
    file = tmp_path / "prefixgate.yaml"
    file.write_text(configuration(name))
    given = {key: text for key, text in environment(name).items() if key.startswith("PREFIXGATE_")}
    config = load_config(file, given, {})
    several = part(rendered(name), "gateway")["spec"].get("replicas") != 1
    assert not several or (config.ledger.url and config.index.redis_url)
    limits = config.limits
    stopping = limits.drain_notice_s + limits.close_idle_s + limits.drain_s
    assert stopping + 15 <= gateway_pod(name)["terminationGracePeriodSeconds"] < stopping + 16
    assert gateway_pod(name)["containers"][0]["ports"][0]["containerPort"] == config.listen.port


def test_the_endpoint_picker_takes_its_own_and_its_pool_leads_to_it(tmp_path: Path) -> None:
    file = tmp_path / "prefixgate.yaml"
    file.write_text(configuration("bundled", "epp"))
    config = load_config(file, {}, {})
    check_epp(config)
    assert config.epp.health_port == 9003
    (pool,) = of_kind("bundled", "InferencePool")
    picker = pool["spec"]["endpointPickerRef"]
    (service,) = (each for each in of_kind("bundled", "Service") if each["metadata"]["name"] == picker["name"])
    assert {"grpc": config.epp.port, "http": 8080} == {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert picker["port"] == {"number": config.epp.port}


def test_tables_are_changed_before_an_upgrade_by_the_new_program_and_values(tmp_path: Path) -> None:
    for name in ("bundled", "external-stores", "ha", "pd-pools", "spool"):
        (job,) = of_kind(name, "Job")
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
        spec = job["spec"]["template"]["spec"]
        assert spec["containers"][0]["args"][:2] == ["ledger", "migrate"]
        assert spec["containers"][0]["image"] == gateway_pod(name)["containers"][0]["image"]
        file = tmp_path / "prefixgate.yaml"
        file.write_text(configuration(name, "migrate"))
        assert load_config(file, {}, {}).ledger.on_ledger_down
        needed = [each for each in rendered(name) if each["metadata"]["name"] == job["metadata"]["name"]]
        weights = [int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in needed if each != job]
        assert weights
        assert max(weights) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
    assert of_kind("restricted", "Job") == []  # a file of one process: the gateway itself does it


def test_gateways_that_spool_have_a_volume_each_and_are_scaled_as_what_they_are() -> None:
    (workload,) = of_kind("spool", "StatefulSet")
    assert [each["metadata"]["name"] for each in workload["spec"]["volumeClaimTemplates"]] == ["state"]
    (scaler,) = of_kind("spool", "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"
    (metric,) = scaler["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "prefixgate_in_flight_requests"
    assert of_kind("spool", "PersistentVolumeClaim", "Deployment") == []


def memory_bytes(pod: Document) -> int:
    amount = str(pod["containers"][0]["resources"]["limits"]["memory"])
    return int(amount.removesuffix("Gi")) * GiB


@each_set
def test_what_may_be_in_memory_fits_into_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / "prefixgate.yaml"
    file.write_text(configuration(name))
    config = load_config(file, environment(name) if name == "external-stores" else {}, {})
    private = 0 if config.index.redis_url else config.index.max_bytes
    assert private + config.workers * (config.limits.buffered_bytes + GiB // 2) <= memory_bytes(gateway_pod(name))
    for valkey in of_kind(name, "StatefulSet"):
        if valkey["metadata"]["name"].endswith("-valkey"):
            pod = valkey["spec"]["template"]["spec"]
            (script,) = pod["containers"][0]["args"]
            most = int(script.split("maxmemory ")[1].split("gb")[0]) * GiB
            assert config.index.max_bytes < most < memory_bytes(pod)


def test_who_finds_endpoints_by_kubernetes_may_list_and_watch_them_and_nothing_else() -> None:
    for name in VALUES_SETS:
        discovers = "kubernetes" in yaml.safe_load(configuration(name)).get("discovery", {})
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


def test_dashboards_are_config_maps_that_grafanas_sidecar_finds() -> None:
    done = template("--set", "monitoring.dashboards.enabled=true", "--show-only", "templates/monitoring.yaml")
    config_maps = documents(done)
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in config_maps} == {"1"}
    files = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").iterdir()}
    assert {name: text for each in config_maps for name, text in each["data"].items()} == files
    # `kubectl apply` keeps a copy in an annotation, and annotations have this limit.
    assert max(len(str(each)) for each in config_maps) < 256 * 1024


STORES = ("--set", "secrets.postgresUrl=postgresql://g@db/l", "--set", "secrets.redisUrl=redis://r")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "replicas=2"), "several replicas need one ledger"),
        (("--set", "replicas=2", *STORES[:2]), "several replicas share index and limits"),
        (("--set", "autoscaling.enabled=true"), "several replicas need one ledger"),
        (("--set", "replicas=2", "--set", "persistence.existingClaim=c,persistence.enabled=true", *STORES), "one pod"),
        (("--set", "epp.enabled=true"), "several replicas need one ledger"),
        (("--set", "epp.inferencePool.enabled=true"), "set epp.enabled"),
        (("--set", "postgres.enabled=true"), "secrets.postgresPassword"),
        (("--set", "postgres.enabled=true,secrets.postgresPassword=p", *STORES), "another PostgreSQL: choose one"),
        (("--set", "config.index.redis_url=redis://u:password@r"), "set secrets.redisUrl"),
        (("--set", "config.ledger.url=postgresql://u:password@r/l"), "set secrets.postgresUrl"),
        (("--set", "epp.config.ledger.url=postgresql://u:password@r/l"), "set secrets.postgresUrl"),
        (("--set", "valkey.enabled=true,valkey.maxMemory=3gb"), "the index in it may take 3221225472 bytes"),
        (("--set", "fullnameOverride=1gate"), "set fullnameOverride"),
        (("--set", "image.tag=latest"), "tag"),
        (("--set", "autoscaling.enabled=true,autoscaling.cpuPercent=0", *STORES), "autoscaling.inFlightPerPod"),
        (("--set", "autoscaling.enabled=true,autoscaling.minReplicas=9", *STORES), "more than autoscaling.maxReplicas"),
        (("--set", "monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true"), "choose one"),
        (("--set", "epp.enabled=true,epp.inferencePool.enabled=true", *STORES), "matchLabels"),
        (("--set", "config=null"), "config"),
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
    done = template("--set", "config.limits=null", "--show-only", "templates/gateway.yaml")
    assert done.returncode == 0, done.stderr
    limits = load_config(None, {}, {}).limits
    seconds = yaml.safe_load(done.stdout)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert seconds == limits.drain_notice_s + limits.close_idle_s + limits.drain_s + 15
