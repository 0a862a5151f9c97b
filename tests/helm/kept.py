"""That every set of values keeps the rules, and that the rules would say so: `make helm-test`."""

from copy import deepcopy

import pytest

from tests.helm.policies import may_reach, violations
from tests.helm.renders import Document, each_set, part, rendered


@each_set
def test_the_rules_are_kept(name: str) -> None:
    assert violations(rendered(name)) == []


def spoiled(what: str) -> list[Document]:
    """A render in which one thing is wrong."""
    found = deepcopy(rendered("bundled"))
    gateway = part(found, "gateway")
    pod = gateway["spec"]["template"]["spec"]
    container = pod["containers"][0]
    match what:
        case "root":
            pod["securityContext"]["runAsNonRoot"] = False
        case "node":
            pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}})
        case "rights":
            container["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]
        case "bounds":
            del container["resources"]["limits"]
        case "probe":
            del container["readinessProbe"]
        case "image":
            container["image"] = "prefixgate:latest"
        case "name":
            gateway["metadata"]["name"] = 1
        case "label":
            gateway["metadata"]["labels"]["app.kubernetes.io/instance"] = True
        case "password":
            gateway["metadata"]["annotations"] = {"note": "a-postgres-password"}
        case "mount":
            container["volumeMounts"].append({"name": "lost", "mountPath": "/lost"})
        case _:
            gateway["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] = "other"
    return found


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("root", "may be root"),
        ("node", "hostPath"),
        ("rights", "may more"),
        ("bounds", "no bounds"),
        ("probe", "has no readinessProbe"),
        ("image", "another one tomorrow"),
        ("name", "no text"),
        ("label", "has the label"),
        ("password", "a text of a Secret"),
        ("mount", "mounts {'lost'}"),
        ("service", "leads to 0 workloads"),
        ("service", "has 0 budgets"),
    ],
)
def test_what_breaks_a_rule_is_named(what: str, said: str) -> None:
    assert said in "\n".join(violations(spoiled(what)))


@pytest.mark.parametrize(
    ("caller", "called", "port", "lets"),
    [
        ("gateway", "valkey", "redis", True),
        ("epp", "valkey", "redis", True),
        ("migrate", "valkey", "redis", False),
        ("test", "valkey", "redis", False),
        ("stranger", "valkey", "redis", False),
        ("gateway", "postgres", "postgres", True),
        ("epp", "postgres", "postgres", True),
        ("migrate", "postgres", "postgres", True),
        ("test", "postgres", "postgres", False),
        ("stranger", "postgres", "postgres", False),
        ("valkey", "postgres", "postgres", False),
        ("postgres", "gateway", "http", False),
        ("valkey", "gateway", "http", False),
        ("gateway", "epp", "grpc", False),
        ("test", "gateway", "http", True),
        ("stranger", "gateway", "http", True),  # `from` is empty there: everyone
        ("stranger", "epp", "grpc", True),
    ],
)
def test_network_policies_let_through_what_the_release_needs_and_nothing_else(
    caller: str, called: str, port: str, lets: bool
) -> None:
    assert may_reach(rendered("bundled"), caller, called, port) is lets


@pytest.mark.parametrize(
    ("caller", "called", "port", "lets"),
    [("test", "gateway", "http", True), ("stranger", "gateway", "http", False), ("gateway", "valkey", "redis", True)],
)
def test_who_is_not_named_does_not_reach_the_gateway(caller: str, called: str, port: str, lets: bool) -> None:
    assert may_reach(rendered("restricted"), caller, called, port) is lets
