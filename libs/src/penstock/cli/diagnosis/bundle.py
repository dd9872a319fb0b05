"""The bundle of `penstock doctor`: an archive for a report about a problem, without secrets and without records."""

import io
import json
import platform
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from penstock.contracts.errors import Invalid

LOG_BYTES_MAX = 2 * 1024 * 1024  # of the end of each log
PREFIX = "PENSTOCK_"
_SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|KEY|CREDENTIAL", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"((?:access_key|secret_key|account_key|password|user)=)[^&\s]*")
_LOGIN = re.compile(r"//[^\s\"']*@")  # a password may have any character, also @ and /
HIDDEN = "(hidden)"


def write_bundle(
    path: Path,
    findings: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, str],
    data: Path,
    environ: Mapping[str, str],
) -> None:
    """Write the archive; `Invalid` if that is not possible."""
    try:
        with tarfile.open(path, "x:gz") as archive:
            for name, text in _files(findings, metrics, data, environ):
                body = text.encode()
                entry = tarfile.TarInfo(f"penstock-doctor/{name}")
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
    except OSError as error:
        raise Invalid(f"cannot write the bundle {path}: {error.strerror}") from error


def _files(
    findings: Sequence[Mapping[str, Any]], metrics: Mapping[str, str], data: Path, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    yield "findings.json", json.dumps(list(findings), indent=2)
    yield "settings.json", json.dumps(visible_settings(environ), indent=2)
    yield "system.txt", f"{platform.platform()}\nPython {platform.python_version()}\n"
    yield "packages.txt", "".join(sorted(f"{each.name}=={each.version}\n" for each in distributions()))
    yield from ((f"metrics/{name}.txt", text) for name, text in metrics.items() if text)
    for log in sorted((data / "logs").glob("*.log*")):
        yield f"logs/{log.name}", without_secrets(_tail(log))


def visible_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of Penstock in the environment, with secret ones hidden."""
    return {
        name: HIDDEN if _SECRET.search(name) else without_secrets(value)
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX)
    }


def without_secrets(text: str) -> str:
    """The text without logins in addresses."""
    return _LOGIN.sub(f"//{HIDDEN}@", _SECRET_OPTION.sub(rf"\1{HIDDEN}", text))


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - LOG_BYTES_MAX, 0))
        return file.read().decode(errors="replace")
