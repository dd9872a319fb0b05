"""The load that containers run needs only confluent-kafka and this folder, as their image has only these."""

import subprocess
import sys

FORBIDDEN = ("docker", "testcontainers", "boto3", "nats", "penstock", "pytest", "hypothesis")
SCRIPT = """
import sys
import tests.testkit.loads.steady_load
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_steady_load_imports_nothing_that_its_container_lacks() -> None:
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert not set(FORBIDDEN) & set(answer.stdout.split())
