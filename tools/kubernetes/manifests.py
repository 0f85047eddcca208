"""Whether documents are such that a cluster takes them, and whether their names fit together."""

import copy
from collections.abc import Iterator

import kubernetes_validate
import yaml

# The oldest release of Kubernetes that the chart is for and that has schemas, and a new one.
RELEASES = ("1.31", "1.37")
# What only newer releases have; the chart makes it where a user asks for it.
NEWER = ("resource.k8s.io/v1",)
# Kinds that are not of Kubernetes itself.
FOREIGN = ("ServiceMonitor",)
# What a container must say, so that a namespace for restricted pods takes it.
CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def read(text: str) -> list[dict]:
    """The documents of a text."""
    return [document for document in yaml.safe_load_all(text) if document]


def pod(document: dict) -> dict | None:
    """The pod that a document makes, if it makes any."""
    if document["kind"] == "Pod":
        return document
    return document.get("spec", {}).get("template")


def containers(document: dict) -> Iterator[dict]:
    """All containers of a document."""
    spec = (pod(document) or {}).get("spec", {})
    yield from spec.get("initContainers", [])
    yield from spec.get("containers", [])


def check(documents: list[dict]) -> list[str]:
    """What is wrong with documents that are applied together, as sentences."""
    wrong = [] if documents else ["there is no document"]
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        wrong += [f"{name}: {sentence}" for sentence in check_schema(document) + check_pod(document)]
        wrong += [f"{name}: {sentence}" for sentence in check_references(document, documents)]
    return wrong


def check_schema(document: dict) -> list[str]:
    """What the schemas of Kubernetes have against a document."""
    if document["kind"] in FOREIGN:
        return []
    wrong = []
    for release in RELEASES[1:] if document["apiVersion"] in NEWER else RELEASES:
        try:
            kubernetes_validate.validate(copy.deepcopy(document), release, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong.append(f"Kubernetes {release}: {'.'.join(str(part) for part in error.path)}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            wrong.append(f"Kubernetes {release} has no {document['apiVersion']} {document['kind']}")
    return wrong


def check_pod(document: dict) -> list[str]:
    """What is wrong within a pod."""
    found = pod(document)
    if not found:
        return []
    wrong = []
    spec = found["spec"]
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in containers(document):
        security = container.get("securityContext", {})
        wrong += [f"{container['name']} may more than it needs: {key}" for key, value in CONFINED.items() if security.get(key) != value]
        mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
        wrong += [f"{container['name']} mounts {name}, which is no volume" for name in sorted(mounts - volumes)]
        ports = {port["name"] for port in container.get("ports", [])}
        for kind in ("readinessProbe", "livenessProbe"):
            port = container.get(kind, {}).get("httpGet", {}).get("port")
            if port is not None and port not in ports:
                wrong.append(f"{kind} names {port}, which is no port of {container['name']}")
    for volume in spec.get("volumes", []):
        if "secret" in volume and volume["secret"].get("defaultMode") != 0o400:
            wrong.append(f"the Secret of {volume['name']} can be read by others than its group: defaultMode must be 0400")
        user = spec.get("securityContext", {}).get("runAsUser", 0)
        if "secret" in volume and user and "fsGroup" not in spec["securityContext"]:
            wrong.append(f"user {user} cannot read the Secret of {volume['name']} without fsGroup")
    return wrong


def check_references(document: dict, documents: list[dict]) -> list[str]:
    """What names something in other documents that is not there."""
    spec = document.get("spec", {})
    selector = {
        "Service": lambda: spec["selector"],
        "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
        "DaemonSet": lambda: spec["selector"]["matchLabels"],
        "StatefulSet": lambda: spec["selector"]["matchLabels"],
        "Deployment": lambda: spec["selector"]["matchLabels"],
    }.get(document["kind"])
    if selector is None:
        return []
    chosen = [other for other in documents if matches(selector(), pod(other))]
    if len(chosen) != 1:
        return [f"it chooses the pods of {len(chosen)} documents"]
    ports = {port["name"] for container in containers(chosen[0]) for port in container.get("ports", [])}
    named = {port["targetPort"] for port in spec.get("ports", [])} if document["kind"] == "Service" else set()
    named |= {port["port"] for rule in spec.get("ingress", []) for port in rule.get("ports", [])}
    wrong = [f"{name} is no port of the pods" for name in sorted(named - ports)]
    if document["kind"] == "StatefulSet":
        names = {other["metadata"]["name"] for other in documents if other["kind"] == "Service"}
        wrong += [] if spec["serviceName"] in names else [f"there is no Service {spec['serviceName']}"]
    return wrong


def matches(labels: dict, found: dict | None) -> bool:
    """Whether a pod has all these labels."""
    own = (found or {}).get("metadata", {}).get("labels", {})
    return bool(found) and labels.items() <= own.items()
