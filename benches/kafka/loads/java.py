"""The Java command of `Load.java`, with the pinned Java client of the conformance tests."""

import functools
from pathlib import Path

from tests.conformance.provision import JAVA_JAR, class_path, compiled, program

SOURCE = Path(__file__).parent / "Load.java"
OPTIONS = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Xlog:disable"]


@functools.cache
def command() -> list[str]:
    """The command; append a `Start` as JSON."""
    return [program("java"), *OPTIONS, "-cp", class_path(compiled("bench-load-jar", SOURCE) / JAVA_JAR), "Load"]
