"""kcat, Prometheus and the package catalogue from Debian's archive, without root and without changes to the machine.

All files are kept under `.venv/debian`, so a second run fetches nothing.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path(sys.prefix) / "debian"
KCAT_PACKAGES = ["kcat", "librdkafka1", "libserdes1", "libavro23", "libjansson4", "libyajl2"]
FETCH_TIMEOUT_S = 240.0


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: tests run in several, and a process waits while another one fetches."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _options() -> list[str]:
    for name in ("lists/partial", "cache/archives/partial"):
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::lists": FOLDER / "lists",
        "Dir::Cache": FOLDER / "cache",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    return [part for name, value in options.items() for part in ("-o", f"{name}={value}")]


@functools.cache
def _update() -> None:
    if any((FOLDER / "lists").glob("*_Packages*")):
        return
    subprocess.run(["apt-get", *_options(), "-q", "update"], check=True, timeout=FETCH_TIMEOUT_S, capture_output=True)


def package_catalogue() -> list[tuple[bytes, bytes]]:
    """Every stanza of the machine's package catalogue as (package name, stanza), tens of MB in all."""
    _options()
    with _alone():
        _update()
    text = subprocess.run(
        ["apt-cache", *_options(), "dumpavail"], check=True, timeout=FETCH_TIMEOUT_S, capture_output=True
    ).stdout
    stanzas = [stanza for stanza in text.split(b"\n\n") if stanza.startswith(b"Package: ")]
    return [(stanza[len(b"Package: ") : stanza.index(b"\n")], stanza) for stanza in stanzas]


def kcat() -> tuple[str, dict[str, str]]:
    """The path of kcat and the environment to run it in: the machine's kcat, or one unpacked here."""
    installed = shutil.which("kcat")
    if installed:
        return installed, dict(os.environ)
    root = _unpacked("kcat", KCAT_PACKAGES)
    libraries = sorted({str(library.parent) for library in root.rglob("*.so*")})
    return str(root / "usr/bin/kcat"), os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


def prometheus(program: str = "prometheus") -> str:
    """The path of a program of the package prometheus, which are `prometheus` and `promtool`."""
    return shutil.which(program) or str(_unpacked("prometheus", ["prometheus"]) / "usr/bin" / program)


def _unpacked(program: str, packages: Iterable[str]) -> Path:
    """The folder in which the packages of a program are unpacked, also by an earlier run."""
    root = FOLDER / program
    with _alone():
        if not (root / "usr/bin" / program).exists():
            _unpack(root, packages)
    return root


def _unpack(root: Path, packages: Iterable[str]) -> None:
    _options()
    _update()
    known = subprocess.run(["apt-cache", *_options(), "pkgnames"], check=True, capture_output=True, text=True).stdout
    wanted = [name for name in packages if name in known.split()]
    downloads = FOLDER / "packages" / root.name
    downloads.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", *_options(), "-q", "download", *wanted],
        cwd=downloads,
        check=True,
        timeout=FETCH_TIMEOUT_S,
        capture_output=True,
    )
    for package in downloads.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
