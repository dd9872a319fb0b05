"""Every module can be imported where the kernel has none of Linux's own calls, as on macOS."""

import subprocess
import sys

# It removes them before the first import of ours. The standard library has looked for them already.
PROGRAM = """
import asyncio, importlib, os, pkgutil, resource, selectors, signal, socket, subprocess, sys, tempfile
import {packages}
GONE = {{
    os: ["sched_getaffinity", "fdatasync", "posix_fadvise", "memfd_create", "pidfd_open", "eventfd", "copy_file_range",
         "posix_fallocate", "O_TMPFILE", "O_DIRECT", "POSIX_FADV_DONTNEED"],
    signal: ["SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGSTKFLT"],
    resource: ["prlimit", "RUSAGE_THREAD"],
    socket: ["SO_BINDTODEVICE", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE"],
}}
for owner, names in GONE.items():
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
for package in [{packages}]:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__") and not found.name.startswith({left_out!r}):
            importlib.import_module(found.name)
from pathlib import Path
from penstock.objectstore.file.disk import sync, sync_data, sync_file, uncache
from penstock.cli.up.options import usable_cores
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
    sync_data(file.fileno(), "darwin")
    sync_file(file.fileno(), "darwin")
    uncache(file.fileno(), 0, 0, "darwin")
sync(Path(tempfile.gettempdir()))
print(len([name for name in sys.modules if name.startswith("penstock")]), usable_cores() > 0)
"""
PACKAGES = ", ".join(
    ["penstock", *(f"penstock_{each}" for each in ("gateway", "flusher", "sequencer", "cacher", "janitor", "console"))]
)
SPARK = ("penstock.spark", "penstock.cli.audit", "penstock.audit")  # PySpark has an environment of its own


def test_no_module_needs_linux_to_be_imported() -> None:
    program = PROGRAM.format(packages=PACKAGES, left_out=SPARK)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    modules, has_cores = done.stdout.split()
    assert int(modules) > 500
    assert has_cores == "True"
