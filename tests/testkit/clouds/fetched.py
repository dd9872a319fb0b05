"""Programs of servers that only `make test-stores` needs, fetched and built in the folder of the user's caches."""

import json
import os
import subprocess
from pathlib import Path

from tests.conformance.provision import Missing, made, program, run

AZURITE = "3.37.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
VERSITY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUILD_TIMEOUT_S = 1800.0  # two minutes of a processor, on a busy machine


def azurite() -> list[str]:
    """The command of Azurite's blob service."""

    def make(folder: Path) -> None:
        root = {"name": "clouds", "version": "1.0.0", "dependencies": {"azurite": AZURITE}}
        (folder / "package.json").write_text(json.dumps(root))
        run([program("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    folder = made("azurite", AZURITE, make)
    return [program("node"), str(folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js")]


def go_program(package: str) -> Path:
    """The program of a Go package with its version. Go checks the hashes of all modules with its own database."""
    name = package.partition("@")[0].rpartition("/")[2]

    def make(folder: Path) -> None:
        environment = os.environ | {"GOBIN": str(folder), "GOFLAGS": "-p=2"}
        try:
            done = subprocess.run(
                ["nice", program("go"), "install", package],
                cwd=folder,
                env=environment,
                timeout=BUILD_TIMEOUT_S,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"the build of {package} took longer than {BUILD_TIMEOUT_S:g} s") from None
        if done.returncode:
            raise Missing(f"go install {package} failed: {done.stderr.strip()[-300:]}")

    return made(name, package, make) / name
