"""Makes kinds.VERSION.json: the objects of kinds.json as the API server of that version holds them.

    eval "$(tests/control-plane/provide)"
    "$KUBEMOOR_HELM_PYTHON" tests/golden/kinds.py

kinds.json holds, one to the line, objects as charts write them, with every kind of field that the API server spells,
defaults or drops in its own way. They are applied server-side, as Helm 4 does; `owned` is what the API server then
says that the applier declared. Starts an etcd and a kube-apiserver from KUBEBUILDER_ASSETS and ends them.
"""

import json
import pathlib
import tempfile
import time

from generate import HERE, NAMESPACE, VOLATILE, ControlPlane

MANAGER = "helm"
# Where an older server serves a kind.
OLDER = {
    ("batch/v1", "CronJob"): "batch/v1beta1",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling/v2beta2",
    ("policy/v1", "PodDisruptionBudget"): "policy/v1beta1",
}


def apply(plane, document, file):
    file.write_text(json.dumps(document))
    return plane.kubectl("apply", "--server-side", f"--field-manager={MANAGER}", f"--filename={file}",
                         "--validate=false", f"--namespace={NAMESPACE}", check=False)


def hold(plane, document, file):
    """The object that the API server makes of a document."""
    deadline = time.monotonic() + 20
    while (result := apply(plane, document, file)).returncode != 0:
        older = OLDER.get((document["apiVersion"], document["kind"]))
        if older and "no matches for kind" in result.stderr:
            document = {**document, "apiVersion": older}
        elif time.monotonic() > deadline:
            raise SystemExit(f"{document['kind']}/{document['metadata']['name']}: {result.stderr}")
        time.sleep(0.1)
    arguments = ["get", "-o=json", f"--filename={file}", f"--namespace={NAMESPACE}"]
    result = plane.kubectl(*arguments, "--show-managed-fields", check=False)
    return json.loads(result.stdout if result.returncode == 0 else plane.kubectl(*arguments).stdout)


def main():
    documents = json.loads((HERE / "kinds.json").read_text())
    with tempfile.TemporaryDirectory() as folder, ControlPlane(pathlib.Path(folder)) as plane:
        version = json.loads(plane.kubectl("get", "--raw=/version").stdout)
        plane.kubectl("create", "namespace", NAMESPACE)
        lines = []
        for document in documents:
            live = hold(plane, document, pathlib.Path(folder) / "document.json")
            entries = live["metadata"].get("managedFields", [])
            owned = [entry["fieldsV1"] for entry in entries if entry["manager"] == MANAGER]
            for field in VOLATILE:
                live["metadata"].pop(field, None)
            lines.append(json.dumps({"live": live, "owned": owned[0] if owned else {}}, ensure_ascii=False, sort_keys=True))
        name = f"kinds.{version['major']}.{version['minor'].rstrip('+')}.json"
        (HERE / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{name}: done")


main()
