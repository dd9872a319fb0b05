"""Programs and the package catalogue from Debian's archive, without root and without changes to the machine.

All files are kept under `.venv/debian`, so a second run fetches nothing.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER = Path(sys.prefix) / "debian"
KCAT_PACKAGES = ["kcat", "librdkafka1", "libserdes1", "libavro23", "libjansson4", "libyajl2"]
# The shell has the same engine without windows, in a third of the size. The fonts make pages look alike everywhere.
CHROMIUM_PACKAGE = "chromium-headless-shell"
FONT_PACKAGES = ["fonts-dejavu-core", "fonts-inter"]
FETCH_TIMEOUT_S = 240.0
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{root}/usr/share/fonts</dir>
  <cachedir>{root}/font-cache</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


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
def _update(*, is_forced: bool = False) -> None:
    if not is_forced and any((FOLDER / "lists").glob("*_Packages*")):
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
    root = _unpacked("kcat", lambda: [name for name in KCAT_PACKAGES if name in _known()])
    return str(root / "usr/bin/kcat"), _environment(root)


def prometheus(program: str = "prometheus") -> str:
    """The path of a program of the package prometheus, which are `prometheus` and `promtool`."""
    return shutil.which(program) or str(_unpacked("prometheus", lambda: ["prometheus"]) / "usr/bin" / program)


def pngquant() -> tuple[str, dict[str, str]]:
    """The path of pngquant, which makes pictures small, and the environment to run it in."""
    installed = shutil.which("pngquant")
    if installed:
        return installed, dict(os.environ)
    root = _unpacked("pngquant", lambda: _missing("pngquant"))
    return str(root / "usr/bin/pngquant"), _environment(root)


def chromium() -> tuple[str, dict[str, str]]:
    """The path of a Chromium without windows and the environment to run it in, with the same fonts everywhere."""
    root = _unpacked("chromium", lambda: [*_missing(CHROMIUM_PACKAGE), *FONT_PACKAGES])
    fonts = root / "fonts.conf"
    fonts.write_text(_FONTS.format(root=root))
    program = shutil.which(CHROMIUM_PACKAGE) or str(root / "usr/lib/chromium" / CHROMIUM_PACKAGE)
    return program, _environment(root) | {"FONTCONFIG_FILE": str(fonts)}


def _environment(root: Path) -> dict[str, str]:
    libraries = sorted({str(library.parent) for library in root.rglob("*.so*")})
    return os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


def _known() -> set[str]:
    found = subprocess.run(["apt-cache", *_options(), "pkgnames"], check=True, capture_output=True, text=True).stdout
    return set(found.split())


def _missing(package: str) -> list[str]:
    """The package and all that it needs, without those that the machine has."""
    command = ["apt-get", *_options(), "-q", "--simulate", "--no-install-recommends", "install", package]
    planned = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]


def _unpacked(name: str, packages: Callable[[], list[str]]) -> Path:
    """The folder with the files of the packages, fetched if there is none."""
    root = FOLDER / name
    with _alone():
        if not root.exists():
            _options()
            _update()
            try:
                _unpack(root, packages())
            except subprocess.CalledProcessError:  # the archive has newer versions than the lists
                _update.cache_clear()
                _update(is_forced=True)
                _unpack(root, packages())
    return root


def _unpack(root: Path, packages: list[str]) -> None:
    """Fetch and unpack the packages; the folder appears when it is complete."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        downloads, made = Path(folder, "downloads"), Path(folder, "root")
        downloads.mkdir()
        subprocess.run(
            ["apt-get", *_options(), "-q", "download", *packages],
            cwd=downloads,
            check=True,
            timeout=FETCH_TIMEOUT_S,
            capture_output=True,
        )
        for package in downloads.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
        made.rename(root)
