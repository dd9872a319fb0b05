"""The serializers of confluent-kafka over SASL_SSL, in an environment of their own.

`requirements.lock` is compiled from `requirements.in` as `make lock` does.
"""

import re
import sys
from pathlib import Path

from tests.conformance.logins import as_librdkafka
from tests.conformance.provision import made, run
from tests.suites.brokers.shape import Brokers, Shape
from tests.suites.suites.suite import FAILED, PASSED, Command, Outcome

ROOT = Path(__file__).parents[4]
LOCK = Path(__file__).parent / "requirements.lock"
TESTS = ("avro", "json", "protobuf")


class Serializers:
    """Values with schemas of a registry are written and read by a client that logs in."""

    name = "serializers"
    shape = Shape(has_logins=True)

    @property
    def project(self) -> str:
        """confluent-kafka, of the pinned version."""
        found = re.search(r"^confluent-kafka==(\S+)", LOCK.read_text(), re.MULTILINE)
        assert found is not None
        return f"confluent-kafka {found[1]} (scenarios of Penstock)"

    def tests(self) -> list[str]:
        """One for each kind of schema."""
        self._python()
        return list(TESTS)

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        """The program for one kind of schema."""
        login = as_librdkafka(brokers.login) if brokers.login else ""
        settings = folder / "client.conf"
        settings.write_text(f"bootstrap.servers={brokers.bootstrap}\n{login}")
        return Command(
            [self._python(), str(Path(__file__).parent / "program.py"), test, str(settings)], {"PYTHONPATH": str(ROOT)}
        )

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        """By the exit code; the last line has the error."""
        last = (output.strip().splitlines() or [""])[-1]
        return {test: Outcome(FAILED, last) if code else Outcome(PASSED)}

    def _python(self) -> str:
        """The Python of the environment."""

        def make(folder: Path) -> None:
            uv = str(Path(sys.executable).with_name("uv"))
            python = str(folder / "bin" / "python")
            run(
                [uv, "venv", "-q", "--allow-existing", "--relocatable", "--python", sys.executable, str(folder)], folder
            )
            run([uv, "pip", "sync", "-q", "--python", python, "--require-hashes", str(LOCK)], folder)

        return str(made("suite-serializers", LOCK.read_text(), make) / "bin" / "python")
