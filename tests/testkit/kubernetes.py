"""A real API server of Kubernetes with its etcd, built by Go in the folder of the user's caches.

The first build takes half an hour of a core. There are no controllers and no nodes: objects are checked, defaulted and
kept, and no pod runs.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.provision import made, program, run
from tests.testkit.servers.backend import LOOPBACK, Process
from tests.testkit.servers.ports import free_port

VERSION, LIBRARIES = "v1.34.2", "v0.34.2"
ETCD = "v3.6.5"
ETCD_MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""
BUILD_TIMEOUT_S = 5400
READY_TIMEOUT_S = 120
POLL_S = 0.2
# The kinds of other projects that the chart and its examples may have: here every content of them is accepted.
OTHER_KINDS = {
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PrometheusRule"),
    "keda.sh/v1alpha1": ("ScaledObject", "TriggerAuthentication"),
}


def etcd_program() -> Path:
    """The path of etcd; its main package is not in the module of its server."""

    def make(folder: Path) -> None:
        (folder / "main.go").write_text(ETCD_MAIN)
        go = program("go")
        run([go, "mod", "init", "etcd"], folder)
        run([go, "get", f"go.etcd.io/etcd/server/v3@{ETCD}"], folder, timeout_s=BUILD_TIMEOUT_S)
        run([go, "build", "-ldflags", "-s -w", "-o", "etcd", "."], folder, timeout_s=BUILD_TIMEOUT_S)

    return made("etcd", ETCD, make) / "etcd"


def api_server_program() -> Path:
    """The path of kube-apiserver."""
    version = {"gitVersion": VERSION, "gitMajor": VERSION[1:].split(".")[0], "gitMinor": VERSION.split(".")[1]}
    flags = " ".join(
        ["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())]
    )

    def make(folder: Path) -> None:
        go = program("go")
        command = [go, "mod", "download", "-json", f"k8s.io/kubernetes@{VERSION}"]
        module = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
        source = folder / "source"
        shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile, ignore=no_workspace)
        run(["chmod", "-R", "u+w", "."], source)
        # The module replaces its libraries with folders that no module has; these are their published versions.
        for library in sorted(set(re.findall(r"(k8s\.io/[a-z-]+) => \./staging", (source / "go.mod").read_text()))):
            run([go, "mod", "edit", f"-replace={library}={library}@{LIBRARIES}"], source)
        build = ["env", "GOFLAGS=-mod=mod", "CGO_ENABLED=0", go, "build", "-ldflags", flags, "-o", "../kube-apiserver"]
        run([*build, "./cmd/kube-apiserver"], source, timeout_s=BUILD_TIMEOUT_S)
        shutil.rmtree(source)

    return made("kube-apiserver", f"{VERSION} {LIBRARIES} {flags}", make) / "kube-apiserver"


def no_workspace(folder: str, names: list[str]) -> set[str]:
    """The workspace of the module's authors, which is not copied."""
    return {"vendor", "go.work", "go.work.sum"} & set(names)


class ApiServer:
    """A running API server; every request is an administrator's."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, as JSON or text; `HTTPError` for others than 2xx."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
            content = answer.read().decode()
        return json.loads(content) if content.startswith("{") else content

    def is_ready(self) -> bool:
        """Whether it answers and has its defaults."""
        try:
            return bool(self.request("GET", "/readyz") == "ok")
        except (urllib.error.URLError, ConnectionError):
            return False

    def write_config(self, path: Path) -> None:
        """A file for the programs of Kubernetes."""
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))

    def accept_other_kinds(self) -> None:
        """Create definitions for kinds of other projects, and wait until they are served."""
        for api, kinds in OTHER_KINDS.items():
            for kind in kinds:
                self.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(api, kind))
            wait(lambda api=api, kinds=kinds: kinds_of(self, api) >= set(kinds))  # type: ignore[misc]


def kinds_of(server: ApiServer, api: str) -> set[str]:
    """The kinds that are served of a group with its version."""
    try:
        return {each["kind"] for each in server.request("GET", f"/apis/{api}")["resources"]}
    except urllib.error.HTTPError:
        return set()


def plural_of(kind: str) -> str:
    """The name of a kind in paths."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def definition(api: str, kind: str) -> Any:
    """The definition of a kind that accepts every content."""
    group, _, version = api.partition("/")
    plural = plural_of(kind)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def wait(condition: Any) -> None:
    """Return when the condition is true; `TimeoutError` if that takes too long."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not true after {READY_TIMEOUT_S} s")
        time.sleep(POLL_S)


@contextlib.contextmanager
def running_api_server(folder: Path) -> Iterator[ApiServer]:
    """An API server with an empty etcd until the end of the block."""
    etcd, server = etcd_program(), api_server_program()
    clients, peers, port = (free_port() for _ in range(3))
    token, key = secrets.token_hex(), folder / "accounts.key"
    (folder / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n')
    os.chmod(folder / "tokens.csv", 0o600)
    run([program("openssl"), "genrsa", "-out", str(key), "2048"], folder)
    store = f"http://{LOOPBACK}:{clients}"
    etcd_flags = {
        "data-dir": "etcd",
        "listen-client-urls": store,
        "advertise-client-urls": store,
        "listen-peer-urls": f"http://{LOOPBACK}:{peers}",
    }
    server_flags = {
        "etcd-servers": store,
        "bind-address": LOOPBACK,
        "secure-port": port,
        "cert-dir": "certificates",
        "token-auth-file": "tokens.csv",
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": "10.0.0.0/16",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
    }
    with contextlib.ExitStack() as running:
        for path, flags in ((etcd, etcd_flags), (server, server_flags)):
            process = Process(
                [path, *(f"--{name}={value}" for name, value in flags.items())], folder, folder / f"{path.name}.log"
            )
            running.callback(process.kill)
        found = ApiServer(f"https://{LOOPBACK}:{port}", token)
        wait(found.is_ready)
        yield found
