"""Traces that are off import nothing; traces that are on need OpenTelemetry, and a missing one is reported."""

import os
import subprocess
import sys

import pytest

from penstock.runtime.process.life import INVALID_EXIT_CODE

SERVICES = ("gateway", "flusher", "sequencer", "cacher")
IMPORTS = "\n".join(f"import penstock_{service}.app" for service in SERVICES)
OFF = f"""
import sys
{IMPORTS}
from penstock.runtime.clock import SystemClock
from penstock.runtime.traces.opening import open_traces
from penstock_flusher.config import FlusherConfig
assert not open_traces(FlusherConfig(), "flusher", SystemClock()).is_on
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "requests")))
"""
# Python finds no module whose entry is None: as if it were not installed.
WITHOUT = "import sys; sys.modules['opentelemetry'] = None\nfrom penstock_{0}.__main__ import main; sys.exit(main())"


def run(program: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | settings, capture_output=True, text=True, check=False
    )


def test_services_without_traces_import_nothing_of_opentelemetry() -> None:
    ended = run(OFF)
    assert ended.stderr == ""
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_with_traces_and_without_opentelemetry_names_the_remedy(service: str) -> None:
    ended = run(WITHOUT.format(service), PENSTOCK_TRACES_RATIO="0.01")
    assert ended.returncode == INVALID_EXIT_CODE
    assert f"{service}: traces_ratio is 0.01, but OpenTelemetry is not installed" in ended.stderr
    assert "install penstock[otel], or set traces_ratio to 0" in ended.stderr


@pytest.mark.parametrize("ratio", ["-0.1", "1.1", "some"])
def test_a_ratio_outside_of_0_and_1_is_rejected(ratio: str) -> None:
    ended = run("from penstock_flusher.__main__ import main; main()", PENSTOCK_TRACES_RATIO=ratio)
    assert ended.returncode == 2
    assert "PENSTOCK_TRACES_RATIO must be" in ended.stderr
