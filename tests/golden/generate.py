"""Makes the golden files of this folder: charts installed by the real Helm SDK on a real API server.

    eval "$(tests/control-plane/provide)"
    "$KUBEMOOR_HELM_PYTHON" tests/golden/generate.py

For each chart CHART beside this file it writes CHART.record, what the release's Secret holds in `data.release` without
Kubernetes' base64, and CHART.live.json, every object of the release as the API server then holds it. Starts an etcd and
a kube-apiserver from KUBEBUILDER_ASSETS on free ports of the loopback and ends them.
"""

import base64
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import helm_python

HERE = pathlib.Path(__file__).parent
ASSETS = pathlib.Path(os.environ["KUBEBUILDER_ASSETS"])
TOKEN = "golden"
NAMESPACE = "golden"
# What no two runs have in common.
VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, condition, process):
    deadline = time.monotonic() + 60
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{what} did not become ready")
        time.sleep(0.1)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ControlPlane:
    """An etcd and a kube-apiserver; ended on exit."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.kubeconfig = folder / "kubeconfig"

    def __enter__(self):
        client, peer, secure = free_port(), free_port(), free_port()
        etcd = self.start(
            "etcd", f"--data-dir={self.folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync")
        wait_for("etcd", lambda: listens(client), etcd)
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        server = self.start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}", f"--cert-dir={self.folder}/certs",
            f"--secure-port={secure}", "--bind-address=127.0.0.1", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount")
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "golden",
            "clusters": [{"name": "golden", "cluster": {
                "server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "golden", "user": {"token": TOKEN}}],
            "contexts": [{"name": "golden", "context": {"cluster": "golden", "user": "golden"}}]}))
        wait_for("kube-apiserver", lambda: self.kubectl("get", "--raw=/readyz", check=False).returncode == 0, server)
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()

    def start(self, program, *arguments):
        log = open(self.folder / f"{program}.log", "wb")
        process = subprocess.Popen([ASSETS / program, *arguments], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def kubectl(self, *arguments, check=True):
        command = [ASSETS / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", "-o=json", *arguments).stdout)


def is_of(release):
    def test(item):
        annotations = item["metadata"].get("annotations") or {}
        return annotations.get("meta.helm.sh/release-name") == release
    return test


def live(plane, release):
    kinds = "corners,configmaps,secrets,deployments,clusterroles"
    items = [item for item in plane.get(kinds, "--all-namespaces")["items"] if is_of(release)(item)]
    for item in items:
        for field in VOLATILE:
            item["metadata"].pop(field, None)
    return items


def main():
    with tempfile.TemporaryDirectory() as folder, ControlPlane(pathlib.Path(folder)) as plane:
        plane.kubectl("apply", f"--filename={HERE}/corner.crd.yaml")
        plane.kubectl("wait", "--for=condition=Established", "customresourcedefinition/corners.kubemoor.test")
        plane.kubectl("create", "namespace", NAMESPACE)
        for chart in sys.argv[1:] or sorted(path.parent.name for path in HERE.glob("*/Chart.yaml")):
            config = helm_python.Config(namespace=NAMESPACE, kubeconfig_path=str(plane.kubeconfig))
            config.install(HERE / chart, chart, {})
            secret = plane.get("secret", f"sh.helm.release.v1.{chart}.v1", f"--namespace={NAMESPACE}")
            (HERE / f"{chart}.record").write_bytes(base64.b64decode(secret["data"]["release"]))
            text = json.dumps(live(plane, chart), ensure_ascii=False, indent=1, sort_keys=True)
            (HERE / f"{chart}.live.json").write_text(text + "\n")
            print(f"{chart}: done")


if __name__ == "__main__":
    main()
