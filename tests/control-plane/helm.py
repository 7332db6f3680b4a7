"""Runs real Helm operations for the tests and the demo: one JSON request per line in, one JSON answer per line out.

    helm.py KUBECONFIG

A request names the operation and what it is about:

    {"op": "install", "namespace": "shop", "release": "web", "chart": "/path", "values": {}, "options": {}}

op: install, upgrade, rollback, uninstall, history, status, get, list, test; template, lint and create, which ask no
cluster.
`chart` and `values` belong to install, upgrade, template and lint. `options` go to the Helm SDK as they are; it refuses a key that it does not know. The useful ones:

    install    create_namespace, wait ("watcher", "legacy", "hookOnly"), timeout_seconds, rollback_on_failure,
               take_ownership, force_conflicts, server_side_apply (bool), disable_hooks, skip_crds, replace, labels
    upgrade    the same but create_namespace and replace; server_side_apply is "true", "false" or "auto" here;
               also cleanup_on_fail, max_history, force_replace, reuse_values
    rollback   version, cleanup_on_fail, max_history, force_replace, force_conflicts, server_side_apply (as upgrade)
    uninstall  keep_history, deletion_propagation, ignore_not_found, wait, timeout_seconds, disable_hooks
    template   kube_version, such as "v1.27.0"

An answer is {"ok": true, "result": ...} or {"ok": false, "error": "...", "code": -62}. The SDK's log goes to stderr.
Ends when stdin ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import helm_python

# The C functions take every option of the SDK's actions; the Python methods in front of them offer only a part.
from helm_python import _native

Request = dict[str, Any]

NO_HANDLE = _native.HANDLE(0)


def render(config: helm_python.Config, function: str, request: Request) -> Any:
    values = request.get("values")
    return call(
        function,
        config._raw(),
        NO_HANDLE,  # no cancellation
        NO_HANDLE,  # no loaded chart, a folder instead
        request["chart"],
        request["release"],
        None if values is None else json.dumps(values),
        json.dumps(request.get("options", {})),
    )


def on_release(config: helm_python.Config, function: str, request: Request) -> Any:
    return call(function, config._raw(), request["release"], json.dumps(request.get("options", {})))


def rollback(config: helm_python.Config, function: str, request: Request) -> None:
    options = json.dumps(request.get("options", {}))
    _native.call_status(function, config._raw(), request["release"], options)


def on_namespace(config: helm_python.Config, function: str, request: Request) -> Any:
    return call(function, config._raw(), json.dumps(request.get("options", {})))


def call(function: str, *arguments: Any) -> Any:
    return json.loads(_native.call_string(function, *arguments))


OPERATIONS = {
    "install": (render, "helm_install"),
    "upgrade": (render, "helm_upgrade"),
    "rollback": (rollback, "helm_rollback"),
    "uninstall": (on_release, "helm_uninstall"),
    "history": (on_release, "helm_history"),
    "status": (on_release, "helm_status"),
    "get": (on_release, "helm_get"),
    "list": (on_namespace, "helm_list"),
    "test": (on_release, "helm_test_run"),
}


def template(request: Request) -> Any:
    chart = helm_python.Chart.load(request["chart"])
    options = request.get("options", {}) | {"name": request["release"], "namespace": request["namespace"]}
    return call("helm_render", chart._raw(), json.dumps(request["values"] or {}), json.dumps(options))


def lint(request: Request) -> Any:
    return helm_python.lint(request["chart"], request["values"], strict=True, namespace=request["namespace"])


def create(request: Request) -> Any:
    name, folder = os.path.basename(request["chart"]), os.path.dirname(request["chart"])
    return helm_python.Chart.create(name, folder).name


OFFLINE = {"template": template, "lint": lint, "create": create}


def answer(kubeconfig: str, line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
        if request["op"] in OFFLINE:
            return {"ok": True, "result": OFFLINE[request["op"]](request)}
        operation, function = OPERATIONS[request["op"]]
        # A connection of its own for every operation, as each run of the helm program has: nothing is cached.
        with helm_python.Config(kubeconfig_path=kubeconfig, namespace=request["namespace"]) as config:
            return {"ok": True, "result": operation(config, function, request)}
    except helm_python.HelmError as error:
        return {"ok": False, "error": error.detail, "code": error.code}
    except (KeyError, ValueError, TypeError) as error:
        return {"ok": False, "error": f"not a request: {type(error).__name__}: {error}", "code": None}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: helm.py KUBECONFIG")
    for line in sys.stdin:
        print(json.dumps(answer(sys.argv[1], line)), flush=True)


if __name__ == "__main__":
    main()
