"""What the programs contain, for machines: a bill of materials in CycloneDX's form, from `cargo metadata`.

https://cyclonedx.org/docs/1.5/json
"""

import json
import uuid
from datetime import datetime, timezone

# Names what is made from what, so that the number of a bill depends on what is in it alone.
NAMESPACE = uuid.UUID("8f0c4f6e-2f0e-5d52-9f0c-9f2d1f4d7a11")


def bill(
    metadata: dict, crates: set[tuple[str, str]], digests: dict[str, str], version: str, moment: int
) -> dict:
    """The bill. `crates` are names and versions of what is shipped, `digests` the SHA-256 of each file that
    is handed out."""
    components = []
    for package in sorted(metadata["packages"], key=lambda package: (package["name"], package["version"])):
        if (package["name"], package["version"]) not in crates:
            continue
        component = {
            "type": "library",
            "name": package["name"],
            "version": package["version"],
            "purl": f"pkg:cargo/{package['name']}@{package['version']}",
            "bom-ref": f"{package['name']}@{package['version']}",
        }
        if licence := package.get("license"):
            component["licenses"] = [{"expression": licence.replace("/", " OR ")}]
        components.append(component)
    for name, digest in sorted(digests.items()):
        hashes = [{"alg": "SHA-256", "content": digest}]
        components.append({"type": "file", "name": name, "bom-ref": f"file:{name}", "hashes": hashes})
    number = uuid.uuid5(NAMESPACE, json.dumps(components, sort_keys=True))
    made = datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {
        "type": "application",
        "name": "causeway",
        "version": version,
        "bom-ref": "causeway",
        "licenses": [{"expression": "Apache-2.0"}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"timestamp": made, "component": about},
        "components": components,
    }
