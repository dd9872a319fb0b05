"""The Java command of `Load.java`, compiled with the pinned jars of the conformance tests."""

import functools
import zipfile
from pathlib import Path

from tests.conformance.provision import jars, made, program, run

SOURCE = Path(__file__).parent / "Load.java"
OPTIONS = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Xlog:disable"]


@functools.cache
def command() -> list[str]:
    """The command; append a `Start` as JSON."""
    libraries = jars()
    class_path = ":".join(map(str, sorted(libraries.glob("*.jar"))))

    def make(folder: Path) -> None:
        (compiler,) = libraries.glob("ecj-*.jar")
        run(
            [
                program("java"),
                "-jar",
                str(compiler),
                "-17",
                "-nowarn",
                "-cp",
                class_path,
                "-d",
                str(folder),
                str(SOURCE),
            ],
            folder,
        )
        with zipfile.ZipFile(folder / "load.jar", "w") as jar:
            for compiled in sorted(folder.glob("*.class")):
                jar.write(compiled, compiled.name)

    folder = made("bench-load", SOURCE.read_text() + str(libraries), make)
    return [program("java"), *OPTIONS, "-cp", f"{folder / 'load.jar'}:{class_path}", "Load"]
