"""Gets the clients that are not in the environment, pinned in pins.toml, into a folder of the user's caches."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINS = Path(__file__).parent / "pins.toml"
JAVA_SOURCE = Path(__file__).parent / "clients" / "JavaClient.java"
GO_SOURCES = Path(__file__).parent / "clients" / "franz_go"
KAFKAJS_DRIVER = Path(__file__).parent / "clients" / "kafkajs.js"
FETCH_TIMEOUT_S = 600
# A JVM that lives for seconds: no time for a second compiler, and little memory, for several run at once.
JAVA_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
CLASSES_TIMEOUT_S = 180
MAVEN_PROJECT = "org.penstock:conformance:1"


class Missing(Exception):
    """A client cannot be had on this machine; the text says why."""


def pins() -> dict[str, Any]:
    """What pins.toml says."""
    return tomllib.loads(PINS.read_text())


def cache_folder() -> Path:
    """Where what was fetched stays, outside of the repository (XDG)."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "penstock" / "conformance"


def run(command: list[str], folder: Path) -> None:
    """Run one command that fetches or makes something; `Missing` with its last words if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=FETCH_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took longer than {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        last_words = " | ".join(done.stdout.strip().splitlines()[-3:])
        raise Missing(f"{command[0]} failed: {last_words}")


def program(name: str) -> str:
    """Where a program of the machine is."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no {name} on this machine")
    return found


def made(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder for what `key` describes: from before, or a new one, which appears only when it is whole."""
    folder = cache_folder() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            make(unfinished)
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():  # somebody else was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def node_modules() -> Path:
    """The folder with KafkaJS; npm itself checks its hash."""
    program("node")
    pin = pins()["npm"]["kafkajs"]

    def make(folder: Path) -> None:
        root = {"name": "conformance", "version": "1.0.0", "dependencies": {"kafkajs": pin["version"]}}
        lock = {**root, "lockfileVersion": 3, "packages": {"": root, "node_modules/kafkajs": pin}}
        (folder / "package.json").write_text(json.dumps(root))
        (folder / "package-lock.json").write_text(json.dumps(lock))
        run([program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return made("npm", json.dumps(pin), make) / "node_modules"


def project(coordinates: list[str]) -> str:
    """A Maven project that needs just these artifacts, and nothing that they need."""
    group, artifact, version = MAVEN_PROJECT.split(":")
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions><exclusion>"
        "<groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>".format(*each.split(":"))
        for each in coordinates
    )
    return (
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def check_hashes(folder: Path, expected: dict[str, str]) -> None:
    """`Missing` if a jar is not there, or is not the one that was pinned."""
    for coordinate, pinned in expected.items():
        _, artifact, version = coordinate.split(":")
        jar = folder / f"{artifact}-{version}.jar"
        if not jar.exists():
            raise Missing(f"Maven brought no {coordinate}")
        if hashlib.sha256(jar.read_bytes()).hexdigest() != pinned:
            raise Missing(f"{coordinate} is not what was pinned")


def jars() -> Path:
    """The folder with the jars, each with the hash that it must have."""
    program("java")
    pinned = pins()["maven"]

    def make(folder: Path) -> None:
        (folder / "pom.xml").write_text(project(list(pinned)))
        run([program("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."], folder)
        check_hashes(folder, pinned)

    return made("jars", json.dumps(pinned), make)


def java_command() -> list[str]:
    """`java` with every jar at hand; a main class and its arguments follow."""
    kept = [f"-XX:SharedArchiveFile={classes_file()}", "-Xlog:disable"] if classes_file().exists() else []
    class_path = [java_client() / "client.jar", *sorted(jars().glob("*.jar"))]
    return [program("java"), *JAVA_OPTIONS, *kept, "-cp", ":".join(map(str, class_path))]


def classes_file() -> Path:
    """Where `keep_classes` keeps classes as Java has them in memory."""
    return java_client() / "classes.jsa"


def keep_classes(bootstrap: str, topic: str) -> None:
    """Use the Java client a little, and keep the classes that took: half of each later start's work, or of a tool's.

    Nothing is shown here, so nothing fails here: where no file comes of it, Java does without.
    """
    if classes_file().exists():
        return
    unfinished = classes_file().with_suffix(f".{os.getpid()}")
    java, *others = java_command()
    asked: list[dict[str, Any]] = [
        {"do": "create_topic", "topic": topic, "partitions": 1, "configs": {}},
        {"do": "produce", "topic": topic, "codec": "zstd", "values": ["one"]},
        {"do": "consume", "topic": topic, "count": 1},
    ]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [java, f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable", *others, "JavaClient", bootstrap],
            input="".join(f"{json.dumps(each)}\n" for each in asked),
            timeout=CLASSES_TIMEOUT_S,
            capture_output=True,
            text=True,
        )
        if unfinished.exists():  # and whole: who ran out of time was killed at it
            unfinished.rename(classes_file())


def java_client() -> Path:
    """The folder with our program around the Java client, compiled, in a jar: Java keeps no classes of folders."""
    source = JAVA_SOURCE.read_text()
    libraries = jars()

    def make(folder: Path) -> None:
        class_path = ":".join(str(jar) for jar in sorted(libraries.glob("*.jar")))
        (compiler,) = libraries.glob("ecj-*.jar")
        options = ["-17", "-nowarn", "-cp", class_path, "-d", str(folder)]
        run([program("java"), "-jar", str(compiler), *options, str(JAVA_SOURCE)], folder)
        with zipfile.ZipFile(folder / "client.jar", "w") as jar:
            for compiled in sorted(folder.glob("*.class")):
                jar.write(compiled, compiled.name)

    return made("java-client-jar", source + str(libraries), make)


def python_driver(module: str) -> list[str]:
    """The command of a driver that is Python."""
    return [sys.executable, "-m", f"tests.conformance.clients.{module}"]


def node_driver() -> list[str]:
    """The command of the driver that is JavaScript."""
    return [program("node"), str(KAFKAJS_DRIVER)]


def go_driver() -> list[str]:
    """The command of the driver that is Go, built; go.sum holds the hashes of what it is built from."""
    sources = {path.name: path.read_text() for path in sorted(GO_SOURCES.iterdir())}

    def make(folder: Path) -> None:
        for name, source in sources.items():
            (folder / name).write_text(source)
        run([program("go"), "build", "-mod=readonly", "-trimpath", "-o", "driver", "."], folder)

    return [str(made("go", json.dumps(sources), make) / "driver")]


def pinned_version(artifact: str) -> str:
    """Which version of a jar was pinned."""
    (version,) = [version for _, name, version in (each.split(":") for each in pins()["maven"]) if name == artifact]
    return str(version)
