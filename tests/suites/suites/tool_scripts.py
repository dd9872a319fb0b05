"""Kafka's command-line tools as scripts, for tests that call them as Kafka's archive has them."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.provision import java_command, made


def tool_scripts(classes: Mapping[str, str]) -> Path:
    """The folder whose `bin` has a script for each name, which runs a Java class."""
    scripts = {name: f'#!/bin/sh\nexec {shlex.join([*java_command(), each])} "$@"\n' for name, each in classes.items()}

    def make(folder: Path) -> None:
        (folder / "bin").mkdir()
        for name, text in scripts.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    return made("tool-scripts", json.dumps(scripts), make)
