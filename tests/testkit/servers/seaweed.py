"""SeaweedFS: a real S3 server with disks, on loopback, with the smallest settings that work."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.testkit.servers.backend import LOOPBACK, Backend, Container, Process, image_for
from tests.testkit.servers.ports import free_ports
from tests.testkit.servers.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, running

PROGRAM = "weed"
VOLUMES = 12  # SeaweedFS takes seven at a time for a bucket
VOLUME_MB = 256
PORTS = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
SOCKETS_FOLDER = "/tmp"  # SeaweedFS has no setting for the folder of its sockets
FILER_PORTS = ("filer.port", "filer.port.grpc")


@contextlib.contextmanager
def running_seaweed(folder: Path, keys: Mapping[str, Any] | None = None) -> Iterator[S3Server]:
    """A new server on free ports, with its data and log in `folder`.

    `keys` are more identities and their policies, in SeaweedFS' format.
    """
    (folder / "data").mkdir()
    found = keys or {"identities": [], "policies": []}
    key = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    everything = {"name": "tests", "actions": ["Admin", "Read", "Write", "List", "Tagging"], "credentials": [key]}
    (folder / "s3.json").write_text(json.dumps({**found, "identities": [everything, *found["identities"]]}))
    ports = free_ports(len(PORTS + FILER_PORTS))
    try:
        with running(start_seaweed(folder, ports), ports[0]) as server:
            yield server
    finally:
        for port in ports:
            for leftover in Path(SOCKETS_FOLDER).glob(f"seaweedfs-*-{port}.sock"):
                leftover.unlink(missing_ok=True)


def start_seaweed(folder: Path, ports: list[int]) -> Backend:
    """Start a server. It may not answer yet."""
    options = _options(folder, ports)
    image = image_for("s3")
    if image:
        return Container(image, [PROGRAM, *options], folder)
    return Process([Path(sys.executable).parent / PROGRAM, *options], folder, folder / "s3-server.log")


def _options(folder: Path, ports: list[int]) -> list[str]:
    options = dict(zip(PORTS + FILER_PORTS, ports, strict=True)) | {
        "dir": folder / "data",
        "ip": LOOPBACK,
        "ip.bind": LOOPBACK,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": VOLUME_MB,
        "volume.max": VOLUMES,
        "volume.preStopSeconds": 0,
        "volume.minFreeSpace": "1GiB",
        "filer.localSocket": folder / "filer.sock",
        "s3": "true",
        "s3.config": folder / "s3.json",
        "s3.localSocket": folder / "s3.sock",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
    }
    return ["-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())]
