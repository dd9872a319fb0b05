"""The tests of franz-go's package kgo, which are in its Go module; go.sum has the hashes."""

import json
import re
import subprocess
from pathlib import Path

from tests.conformance.provision import made, program, run
from tests.suites.brokers.shape import COUNT, PASSWORD, USER, Brokers, Shape
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Command, Outcome

SOURCES = Path(__file__).parent / "franz_go"
MODULE = "github.com/twmb/franz-go"
RECORDS = 50_000  # of each test that passes many records through groups; the default is 500,000
OUTCOMES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
RESULT = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
FUNCTION = re.compile(r"^func (Test\w+)\(t \*testing\.T\) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
# Most tests of the package need no broker. These names are in the others.
USES_BROKERS = re.compile(r"newTestClient|tmpTopic|adm\(\)|getSeedBrokers|testClientOpts|scramSeeds|oauthSeeds")
REASON = re.compile(r"^ +\w+_test\.go:\d+: (.*)$", re.MULTILINE)


class FranzGo:
    """All tests of kgo that use brokers."""

    name = "franz-go"
    shape = Shape()

    @property
    def project(self) -> str:
        """franz-go, of the version in go.mod."""
        required = re.search(rf"{MODULE} v(\S+)", (SOURCES / "go.mod").read_text())
        assert required is not None
        return f"franz-go {required[1]} (kgo)"

    def tests(self) -> list[str]:
        """The tests in the files of the fetched module."""
        listed = [program("go"), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", MODULE]
        done = subprocess.run(listed, cwd=self._built(), capture_output=True, text=True, check=True)
        files = sorted((Path(done.stdout.strip()) / "pkg" / "kgo").glob("*_test.go"))
        functions = [found for each in files for found in FUNCTION.findall(each.read_text())]
        return [name for name, body in functions if USES_BROKERS.search(body)]

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        """The test's process."""
        environment = {
            "KGO_SEEDS": brokers.bootstrap,
            "KGO_TEST_RF": str(COUNT),
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_TEST_UNSAFE": "1",  # transactions may begin while the one before ends, as Kafka allows
            "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}",
            "KGO_TEST_SCRAM_SEEDS": ",".join(brokers.login_addresses),
            "KGO_LOG_LEVEL": "none",
        }
        return Command([str(self._built() / "kgo.test"), "-test.v", f"-test.run=^{test}$"], environment)

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        """The outcomes of subtests without subtests of their own, or of the test."""
        found = {name: OUTCOMES[word] for word, name in RESULT.findall(output)}
        if test not in found:  # a panic or a kill
            found[test] = FAILED
        reason = next(iter(REASON.findall(output)), "") or _last_line(output)
        leaves = {
            name: Outcome(outcome, "" if outcome == PASSED else reason)
            for name, outcome in found.items()
            if not any(other.startswith(f"{name}/") for other in found)
        }
        if code and not any(each.outcome == FAILED for each in leaves.values()):
            leaves[test] = Outcome(FAILED, reason)
        return leaves

    def _built(self) -> Path:
        """The folder with the compiled tests."""
        sources = {path.name: path.read_text() for path in sorted(SOURCES.iterdir())}

        def make(folder: Path) -> None:
            for name, source in sources.items():
                (folder / name).write_text(source)
            run([program("go"), "test", "-mod=readonly", "-c", "-o", "kgo.test", f"{MODULE}/pkg/kgo"], folder)

        return made("suite-franz-go", json.dumps(sources), make)


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1]
