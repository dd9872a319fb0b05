"""Fetches clients that are not in the environment, pinned in pins.toml, into a folder of the user's caches."""

import contextlib
import hashlib
import importlib.metadata
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
# For a JVM that runs for seconds: without the second compiler, and with little memory, because several run at once.
JAVA_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
CLASSES_TIMEOUT_S = 180
JAVA_JAR = "client.jar"
NEWER_LIBRARY = "KCAT_LIBRDKAFKA"  # a variable for the driver of kcat: the folder of another librdkafka
MAVEN_PROJECT = "org.penstock:conformance:1"


class Missing(Exception):
    """A client is not available on this machine, for the reason in the text."""


def pins() -> dict[str, Any]:
    """The content of pins.toml."""
    return tomllib.loads(PINS.read_text())


def cache_folder() -> Path:
    """The folder for fetched files, outside the repository (XDG)."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "penstock" / "conformance"


def run(command: list[str], folder: Path, *, timeout_s: float = FETCH_TIMEOUT_S) -> None:
    """Run one command that fetches or builds; `Missing` with the end of its output if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=timeout_s, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took longer than {timeout_s:.0f} s") from None
    if done.returncode:
        last_words = " | ".join(done.stdout.strip().splitlines()[-3:])
        raise Missing(f"{command[0]} failed: {last_words}")


def program(name: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"there is no {name} on this machine")
    return found


def made(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder for `key`; if it does not exist, `make` fills it. A new folder appears only when it is complete."""
    folder = cache_folder() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            make(unfinished)
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():  # another process was faster
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
    """A Maven project with these artifacts, without their dependencies."""
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
    """`Missing` if a jar does not exist, or has another hash than the pinned one."""
    for coordinate, pinned in expected.items():
        _, artifact, version = coordinate.split(":")
        jar = folder / f"{artifact}-{version}.jar"
        if not jar.exists():
            raise Missing(f"Maven brought no {coordinate}")
        if hashlib.sha256(jar.read_bytes()).hexdigest() != pinned:
            raise Missing(f"{coordinate} has another hash than the pinned one")


def jars() -> Path:
    """The folder with the jars, with checked hashes."""
    program("java")
    pinned = pins()["maven"]

    def make(folder: Path) -> None:
        (folder / "pom.xml").write_text(project(list(pinned)))
        run([program("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."], folder)
        check_hashes(folder, pinned)

    return made("jars", json.dumps(pinned), make)


def java_command() -> list[str]:
    """The `java` command with all jars in its class path; append a main class and its arguments."""
    kept = [f"-XX:SharedArchiveFile={classes_file()}", "-Xlog:disable"] if classes_file().exists() else []
    return [program("java"), *JAVA_OPTIONS, *kept, "-cp", class_path(java_client() / JAVA_JAR)]


def class_path(*jars_before: Path) -> str:
    """The class path with all pinned jars, after the given ones."""
    return ":".join(map(str, [*jars_before, *sorted(jars().glob("*.jar"))]))


def classes_file() -> Path:
    """The path of the class data archive that `keep_classes` writes."""
    return java_client() / "classes.jsa"


def keep_classes(bootstrap: str, topic: str) -> None:
    """Run the Java client once, and archive its classes: this halves the start-up work of clients and tools.

    An error here is ignored: without the archive, Java only starts more slowly.
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
        if unfinished.exists():  # and is complete: after a time-out this line is not reached
            unfinished.rename(classes_file())


def java_client() -> Path:
    """The folder with the compiled driver of the Java client."""
    return compiled("java-client-jar", JAVA_SOURCE)


def compiled(name: str, source: Path) -> Path:
    """The folder with the classes of a Java source in `JAVA_JAR`: Java archives no classes from folders."""
    libraries = jars()

    def make(folder: Path) -> None:
        (compiler,) = libraries.glob("ecj-*.jar")
        options = ["-17", "-nowarn", "-cp", class_path(), "-d", str(folder)]
        run([program("java"), "-jar", str(compiler), *options, str(source)], folder)
        with zipfile.ZipFile(folder / JAVA_JAR, "w") as jar:
            for each in sorted(folder.glob("*.class")):
                jar.write(each, each.name)

    return made(name, source.read_text() + str(libraries), make)


def python_driver(module: str) -> list[str]:
    """The command of a Python driver."""
    return [sys.executable, "-m", f"tests.conformance.clients.{module}"]


def librdkafka() -> dict[str, str]:
    """The variable that lets kcat use the librdkafka of confluent-kafka, which newer systems also have."""
    files = importlib.metadata.files("confluent-kafka") or []
    found = [str(each.locate()) for each in files if each.name.startswith("librdkafka-")]
    if not found:
        raise Missing("confluent-kafka has no librdkafka of its own")

    def make(folder: Path) -> None:
        (folder / "librdkafka.so.1").symlink_to(found[0])

    return {NEWER_LIBRARY: str(made("librdkafka", found[0], make))}


def node_driver() -> list[str]:
    """The command of the JavaScript driver."""
    return [program("node"), str(KAFKAJS_DRIVER)]


def go_driver() -> list[str]:
    """The command of the Go driver, after its build; go.sum has the hashes of its dependencies."""
    sources = {path.name: path.read_text() for path in sorted(GO_SOURCES.iterdir())}

    def make(folder: Path) -> None:
        for name, source in sources.items():
            (folder / name).write_text(source)
        run([program("go"), "build", "-mod=readonly", "-trimpath", "-o", "driver", "."], folder)

    return [str(made("go", json.dumps(sources), make) / "driver")]


def pinned_version(artifact: str) -> str:
    """The pinned version of a jar."""
    (version,) = [version for _, name, version in (each.split(":") for each in pins()["maven"]) if name == artifact]
    return str(version)
