"""Writes what comes from the chart: the static manifests, and the table of its values.

    render.py FOLDER

FOLDER is the checkout, or an empty folder to compare with it. Everything is rendered by the real Helm SDK, without a
cluster. `make manifests` runs this; tests/it/chart.rs holds the files in the checkout to it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Iterator

# The C functions take every option; the Python methods in front of them offer only a part.
from helm_python import Chart, _native

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"

STATIC: dict[str, Any] = {}
ENFORCING = STATIC | {"rights": {"enforce": True, "admissionPolicies": "Always"}}
PROTECTED = STATIC | {"rights": {"protectGuard": "Always"}}
PRIVILEGED = STATIC | {"rights": {"privileged": True}}
CERT_MANAGER = {"certificates": {"source": "CertManager"}}

FILES: dict[str, tuple[dict[str, Any], str]] = {
    "deploy/rbac.yaml": (STATIC, "rbac.yaml"),
    "deploy/networkpolicy.yaml": (STATIC, "networkpolicy.yaml"),
    "deploy/workload.yaml": (STATIC, "workload.yaml"),
    "deploy/availability.yaml": (STATIC, "availability.yaml"),
    "deploy/people.yaml": (STATIC, "people.yaml"),
    "deploy/enforce/arbiter.yaml": (ENFORCING, "arbiter.yaml"),
    "deploy/enforce/repair.yaml": (ENFORCING, "repair.yaml"),
    "deploy/enforce/writes.yaml": (ENFORCING, "writes.yaml"),
    "deploy/enforce/namespace-writes.yaml": (ENFORCING, "namespace-writes.yaml"),
    "deploy/enforce/guard.yaml": (PROTECTED, "guard.yaml"),
    "deploy/enforce/privileged.yaml": (PRIVILEGED, "privileged.yaml"),
    "certs/issuer.yaml": (CERT_MANAGER, "issuer.yaml"),
    "certs/certificate.yaml": (CERT_MANAGER, "certificate.yaml"),
    "certs/workload.yaml": (CERT_MANAGER, "workload.yaml"),
}

# Templates that are rendered for the oldest version that Kubemoor supports, because every cluster takes the file. The
# others are rendered for a current version.
FOR_EVERY_CLUSTER = {"workload.yaml"}
OLDEST = "v1.20.0"

TABLE = """\
# Values of the chart

`make manifests` writes this page from [values.yaml](../deploy/chart/values.yaml).
[values.schema.json](../deploy/chart/values.schema.json) refuses all other values.

| value | default | |
|---|---|---|
"""

# A key of values.yaml: its indentation and its name.
KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9_]*):")


def rows(text: str, values: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of each value with a comment of its own."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("# "))
            continue
        key = KEY.match(line)
        if key:
            indent = len(key[1])
            path = [(depth, name) for depth, name in path if depth < indent] + [(indent, key[2])]
        if key and comment:
            names = [name for _, name in path]
            yield ".".join(names), json.dumps(default(values, names)), " ".join(comment)
        comment = []


def default(values: Any, names: list[str]) -> Any:
    for name in names:
        values = values[name]
    return values


def table() -> str:
    found = rows((CHART / "values.yaml").read_text(), Chart.load(CHART).values)
    lines = [f"| `{path}` | `{default}` | {comment} |" for path, default, comment in found]
    return TABLE + "\n".join(lines) + "\n"


def rendered(values: dict[str, Any], template: str) -> str:
    chart = Chart.load(CHART)
    options = {"name": "kubemoor", "namespace": "kubemoor-system"}
    if template in FOR_EVERY_CLUSTER:
        options["kube_version"] = OLDEST
    files = json.loads(_native.call_string("helm_render", chart._raw(), json.dumps(values), json.dumps(options)))
    text = files[f"kubemoor/templates/{template}"].strip("\n").removeprefix("---\n")
    return f"# Rendered from deploy/chart/templates/{template} by `make manifests`: change it there.\n{text}\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: render.py FOLDER")
    folder = Path(sys.argv[1])
    texts = {file: rendered(values, template) for file, (values, template) in FILES.items()}
    texts["docs/chart-values.md"] = table()
    for file, text in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    print(json.dumps(sorted(texts)))


if __name__ == "__main__":
    main()
