"""Fetches the archives of npm packages, pinned in pins.toml."""

import base64
import hashlib
import tomllib
from pathlib import Path
from typing import Any

from tests.conformance.provision import Missing, made, program, run

PINS = Path(__file__).parent / "pins.toml"


def npm_archive(package: str) -> Path:
    """The path of the package's archive, with a checked hash."""
    pin = pins()["npm"][package]

    def make(folder: Path) -> None:
        run([program("npm"), "pack", "--silent", f"{package}@{pin['version']}"], folder)
        (found,) = folder.glob("*.tgz")
        check_integrity(found.read_bytes(), pin["integrity"], package)
        found.rename(folder / "package.tgz")

    return made("npm-archive", f"{package} {pin}", make) / "package.tgz"


def pins() -> dict[str, Any]:
    """The content of pins.toml."""
    return tomllib.loads(PINS.read_text())


def check_integrity(content: bytes, integrity: str, package: str) -> None:
    """`Missing` if the content has another hash than the pinned one, in the form of npm."""
    algorithm, _, digest = integrity.partition("-")
    if base64.b64encode(hashlib.new(algorithm, content).digest()).decode() != digest:
        raise Missing(f"the archive of {package} has another hash than the pinned one")
