"""What every render must keep, whatever the values: no pod with more rights than it needs, no secret in the open, no
name that leads nowhere, and network policies that close what they say. Each rule yields what breaks it, in words.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any

from tests.helm.renders import Document, name_of, pod_templates

COMPONENT = "app.kubernetes.io/component"
VOLUMES = {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
LONGEST = {"Service": 63, "StatefulSet": 52, "Job": 63}
"""Characters: of a Service's DNS label, and so that the labels which controllers make of a name fit into 63."""
BUILT_IN_LEAST = {"Deployment", "StatefulSet"}


def violations(found: list[Document]) -> list[str]:
    """All rules, over all objects of a render."""
    rules = (pod_rights, resources, probes, images, names, open_secrets, references, disruptions)
    return [f"{rule.__name__}: {said}" for rule in rules for said in rule(found)]


def containers(found: list[Document]) -> Iterator[tuple[str, Document]]:
    for document, pod in pod_templates(found):
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            yield f"{document['kind']} {name_of(document)}/{container['name']}", container


def pod_rights(found: list[Document]) -> Iterator[str]:
    """The Pod Security Standard `restricted`, and a root file system that is only read."""
    for document, pod in pod_templates(found):
        where, spec = f"{document['kind']} {name_of(document)}", pod["spec"]
        security = spec["securityContext"]
        if security.get("runAsNonRoot") is not True or security.get("runAsUser", 1) == 0:
            yield f"{where} may be root"
        if {"hostNetwork", "hostPID", "hostIPC"} & set(spec):
            yield f"{where} shares something of its node"
        if spec.get("enableServiceLinks") is not False:
            yield f"{where} gets variables of Services"
        for volume in spec.get("volumes", ()):
            if not set(volume) - {"name"} <= VOLUMES:
                yield f"{where} has the volume {volume}"
        is_caller = pod["metadata"]["labels"][COMPONENT] in ("gateway", "epp")
        if spec.get("automountServiceAccountToken") is not False and not is_caller:
            yield f"{where} has a token of the API server"
    for where, container in containers(found):
        security = container.get("securityContext", {})
        wanted = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        if security != wanted:
            yield f"{where} may more: {security}"


def resources(found: list[Document]) -> Iterator[str]:
    for where, container in containers(found):
        asked = container.get("resources", {})
        if not {"cpu", "memory"} <= set(asked.get("requests", {})) or "memory" not in asked.get("limits", {}):
            yield f"{where} has no bounds: {asked}"


def probes(found: list[Document]) -> Iterator[str]:
    for document, pod in pod_templates(found):
        if document["kind"] in BUILT_IN_LEAST:
            for container in pod["spec"]["containers"]:
                missing = {"startupProbe", "readinessProbe", "livenessProbe"} - set(container)
                if missing:
                    yield f"{name_of(document)}/{container['name']} has no {', '.join(sorted(missing))}"


def images(found: list[Document]) -> Iterator[str]:
    for where, container in containers(found):
        image = container["image"]
        if not re.search(r":[A-Za-z0-9_][A-Za-z0-9_.-]*(@sha256:[0-9a-f]{64})?$", image) or ":latest" in image:
            yield f"{where} runs {image}, which may be another one tomorrow"


def names(found: list[Document]) -> Iterator[str]:
    """Those that Kubernetes takes, each once, and labels that are texts."""
    seen = set()
    for document in found:
        metadata, kind = document["metadata"], document["kind"]
        name = metadata["name"]
        where = f"{kind} {name!r}"
        if not isinstance(name, str) or len(name) > LONGEST.get(kind, 253):
            yield f"{where} is no text, or too long"
        elif not (DNS_LABEL if kind == "Service" else DNS_NAME).fullmatch(name):
            yield f"{where} is no name"
        key = (document["apiVersion"], kind, metadata.get("namespace"), name)
        if key in seen:
            yield f"{where} is there twice"
        seen.add(key)
        for each in (metadata, *(pod["metadata"] for _, pod in pod_templates([document]))):
            for label, text in each.get("labels", {}).items():
                if not isinstance(text, str) or len(text) > 63 or not LABEL.fullmatch(text):
                    yield f"{where} has the label {label}={text!r}"
            for annotation, text in each.get("annotations", {}).items():
                if not isinstance(text, str):
                    yield f"{where} has the annotation {annotation}={text!r}"


def open_secrets(found: list[Document]) -> Iterator[str]:
    """Texts of Secrets, or passwords in URLs, where everybody reads them."""
    secrets = {
        base64.b64decode(text).decode()
        for document in found
        if document["kind"] == "Secret"
        for text in document["data"].values()
    }
    for document in found:
        if document["kind"] != "Secret":
            text = str(document)
            if any(len(secret) > 7 and secret in text for secret in secrets):
                yield f"{document['kind']} {name_of(document)} has a text of a Secret"
            if re.search(r"(postgres|redis)\S*://[^/@\s]*:[^/@\s]+@", text):
                yield f"{document['kind']} {name_of(document)} has a password"


def references(found: list[Document]) -> Iterator[str]:
    """Names of ConfigMaps, own Secrets, claims, volumes and ports that nothing has."""
    for document, pod in pod_templates(found):
        where = f"{document['kind']} {name_of(document)}"
        yield from (f"{where} {said}" for said in _lost_of_pod(found, document, pod["spec"]))
    pods = [pod for _, pod in pod_templates(found)]
    have = {(document["kind"], name_of(document)) for document in found}
    for document in found:
        if document["kind"] == "Service":
            chosen = [pod for pod in pods if matches(document["spec"], pod["metadata"]["labels"])]
            ports = {port["name"] for pod in chosen for each in pod["spec"]["containers"] for port in each["ports"]}
            lost = {port["targetPort"] for port in document["spec"]["ports"]} - ports
            if len(chosen) != 1 or lost:
                yield f"Service {name_of(document)} leads to {len(chosen)} workloads, and ports {lost} are nowhere"
        if document["kind"] == "HorizontalPodAutoscaler":
            target = document["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) not in have:
                yield f"{name_of(document)} scales {target}"


def _lost_of_pod(found: list[Document], document: Document, spec: Document) -> Iterator[str]:
    secrets = {name_of(each): set(each["data"]) for each in found if each["kind"] == "Secret"}
    configs = {name_of(each) for each in found if each["kind"] == "ConfigMap"}
    claims = {each["metadata"]["name"] for each in document["spec"].get("volumeClaimTemplates", ())}
    volumes = {each["name"]: each for each in spec.get("volumes", ())}
    if claims & set(volumes):
        yield "has a volume twice"
    for container in spec["containers"]:
        if lost := {mount["name"] for mount in container.get("volumeMounts", ())} - claims - set(volumes):
            yield f"mounts {lost}"
        for variable in container.get("env", ()):
            place = variable.get("valueFrom", {}).get("secretKeyRef")
            if place and place["key"] not in secrets.get(place["name"], {place["key"]}):
                yield f"asks {place['name']} for {place['key']}"
    for volume in volumes.values():
        if volume["name"] == "config" and volume["configMap"]["name"] not in configs:
            yield f"mounts {volume['configMap']['name']}"
        stored = volume.get("secret", {})
        items = {item["key"] for item in stored.get("items", ())}
        if not items <= secrets.get(stored.get("secretName"), items):
            yield f"mounts keys of {stored['secretName']} that it has not"


def disruptions(found: list[Document]) -> Iterator[str]:
    """Who has several replicas has a budget, unless there are none at all."""
    budgets = [each["spec"]["selector"] for each in found if each["kind"] == "PodDisruptionBudget"]
    for document, pod in pod_templates(found):
        if budgets and document["spec"].get("replicas", 2) > 1 and document["kind"] in BUILT_IN_LEAST:
            covering = [one for one in budgets if matches({"selector": one}, pod["metadata"]["labels"])]
            if len(covering) != 1:
                yield f"{name_of(document)} has {len(covering)} budgets"


def matches(spec: Document, labels: dict[str, str]) -> bool:
    """Whether a selector of either form chooses a pod."""
    selector: dict[str, Any] = spec["selector"]
    equal = selector.get("matchLabels", selector if "matchExpressions" not in selector else {})
    if not equal.items() <= labels.items():
        return False
    return all(
        labels.get(each["key"]) in each["values"]
        for each in selector.get("matchExpressions", ())
        if each["operator"] == "In"
    )


def may_reach(found: list[Document], caller: str, called: str, port: str) -> bool:
    """Whether network policies let pods of one part of the release reach a port of another part, by its name.

    A part that no render has, such as "stranger", has no labels. Of peers only pods of the namespace are looked at.
    """
    pods = {pod["metadata"]["labels"][COMPONENT]: pod for _, pod in pod_templates(found)}
    labels = {part: pods[part]["metadata"]["labels"] if part in pods else {} for part in (caller, called)}
    numbers = {
        port,
        *(
            each["containerPort"]
            for c in pods[called]["spec"]["containers"]
            for each in c["ports"]
            if each["name"] == port
        ),
    }
    return _lets(found, "Ingress", labels[called], labels[caller], numbers) and _lets(
        found, "Egress", labels[caller], labels[called], numbers
    )


def _lets(found: list[Document], way: str, own: dict[str, str], other: dict[str, str], ports: set[str | int]) -> bool:
    specs = [document["spec"] for document in found if document["kind"] == "NetworkPolicy"]
    closing = [spec for spec in specs if way in spec["policyTypes"] and matches({"selector": spec["podSelector"]}, own)]
    rules = [rule for spec in closing for rule in spec.get(way.lower(), ())]
    return not closing or any(
        (not rule.get("ports") or any(each["port"] in ports for each in rule["ports"]))
        and _has_peer(rule.get("from" if way == "Ingress" else "to"), other)
        for rule in rules
    )


def _has_peer(peers: list[Document] | None, labels: dict[str, str]) -> bool:
    return peers is None or any(
        "podSelector" in peer and "namespaceSelector" not in peer and matches({"selector": peer["podSelector"]}, labels)
        for peer in peers
    )
