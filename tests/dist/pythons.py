"""The Pythons of this machine, by version."""

import os
import shutil
import subprocess
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def find_python(version: str) -> Path | None:
    """A Python of this version that runs: from the path, or one that pyenv or uv installed."""
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    on_path = shutil.which(f"python{version}")
    candidates = [
        *([Path(on_path)] if on_path else []),
        *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")),
        *sorted(data.glob(f"uv/python/cpython-{version}.*/bin/python{version}")),
    ]
    return next((each for each in candidates if runs(each, version)), None)


def runs(python: Path, version: str) -> bool:
    """Whether a Python is there in this version; a shim of pyenv may be there without it."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return done.stdout.strip() == version
