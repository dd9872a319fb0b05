"""The compose project, built from nothing: the times of build and start, the image sizes, and a load from the host."""

import re
from collections.abc import Iterator

from benches.report import Result
from benches.whole import TUNED, TUNED_MESSAGES, load
from tests.testkit.clusters.compose import build_images, docker, running_project
from tests.testkit.loads.steady_load import create_topic

BENCH = "compose"
SERVICES = ("gateway", "flusher", "sequencer", "cacher")
IMAGE_MB_MAX = 250.0
PARTITIONS = 16
TOPIC = "bench"
MIB = 1024 * 1024


def from_nothing(mib: int) -> Iterator[Result]:
    """Build without any cache, start, produce and consume `mib` MiB through the proxy."""
    yield Result(BENCH, "build of all images, without cache", build_images("--no-cache"), "s")
    for service in SERVICES:
        size = int(docker("image", "inspect", "--format", "{{.Size}}", f"penstock/{service}"))
        yield Result(BENCH, f"image of the {service}", size / 1e6, "MB", IMAGE_MB_MAX)
    with running_project("penstock-bench") as project:
        yield Result(BENCH, "start, until all containers are healthy", project.started_s, "s")
        create_topic(project.kafka, TOPIC, PARTITIONS)
        arguments = ("--mib", str(mib), "--partitions", str(PARTITIONS))
        for kind, settings in (("produce", (*TUNED, *TUNED_MESSAGES)), ("consume", ())):
            answer = load(project.kafka, kind, TOPIC, *arguments, settings=settings)
            yield Result(
                BENCH, f"{kind} {answer['mib']:.0f} MiB", answer["mib"] * MIB / 1e6 / answer["seconds"], "MB/s"
            )
        for container in project.containers():
            text = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", container.id)
            yield Result(
                BENCH,
                f"memory of {container.service} after the load",
                _mib(text),
                "MiB",
                container.memory_bytes_max / MIB,
            )


def _mib(text: str) -> float:
    """The MiB of a text like `123.4MiB / 1GiB`, which docker prints."""
    found = re.match(r"([0-9.]+)([KMG])iB", text)
    assert found, text
    return float(found[1]) * {"K": 1 / 1024, "M": 1, "G": 1024}[found[2]]
