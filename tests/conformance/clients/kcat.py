"""The driver of kcat, with the options of its command line."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any

from tests.conformance.clients.protocol import CONSUME_TIMEOUT_S, SESSION_TIMEOUT_MS, STATIC_SESSION_TIMEOUT_MS, serve
from tests.conformance.logins import OAUTHBEARER, read_settings
from tests.conformance.provision import NEWER_LIBRARY
from tests.testkit.servers import debian

KEY_DELIMITER = ":"
SCRAM_VERSION = (2, 6, 1)  # an older librdkafka repeats its part of the nonce, as Kafka 4 does not accept (RFC 5802)
PATIENTLY = ["-m", "15"]  # seconds for metadata: the answer to a wrong password comes after a delay


class Kcat:
    def __init__(self, bootstrap: str, login_files: list[str]) -> None:
        program, self._environment = debian.kcat()
        if (folder := os.environ.get(NEWER_LIBRARY)) is not None:
            known = self._environment.get("LD_LIBRARY_PATH", "")
            self._environment = self._environment | {"LD_LIBRARY_PATH": f"{folder}:{known}".rstrip(":")}
        self._command = [program]
        self._features = self._run("-V")
        self._mechanism = read_settings(login_files).get("sasl.mechanism", "")
        self._command += ["-b", bootstrap, *(part for path in login_files for part in ("-F", path))]
        self._member: subprocess.Popen[str] | None = None
        self._lines: list[list[Any]] = []
        self._assignment: list[list[Any]] = []

    def _run(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments],
            input=given,
            env=self._environment,
            timeout=CONSUME_TIMEOUT_S,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def version(self) -> tuple[str, str]:
        """The versions of kcat and of its librdkafka."""
        found = re.search(r"Version (\S+) .*librdkafka (\S+)", self._features)
        assert found, self._features
        return found[1], f"librdkafka {found[2]}"

    def produce(self, topic: str, codec: str, values: list[str], keys: list[str] | None = None) -> None:
        """Produce; kcat reports no offsets."""
        self._check_mechanism()
        lines = [keys[number] + KEY_DELIMITER + value if keys else value for number, value in enumerate(values)]
        key_settings = ["-K", KEY_DELIMITER] if keys else []
        self._run(
            "-P", "-t", topic, "-p", "0", "-z", codec, *key_settings, given="".join(f"{each}\n" for each in lines)
        )

    def _check_mechanism(self) -> None:
        """Raise `NotImplementedError` if the librdkafka of this kcat lacks the mechanism, or has it wrong."""
        if self._mechanism == OAUTHBEARER and "oidc" not in self._features:
            raise NotImplementedError("with tokens")
        version = self.version()[1].removeprefix("librdkafka ")
        if self._mechanism.startswith("SCRAM") and tuple(map(int, version.split("."))) < SCRAM_VERSION:
            raise NotImplementedError("with SCRAM")

    def consume(self, topic: str, count: int, committed: bool = False) -> list[Any]:
        isolation = "read_committed" if committed else "read_uncommitted"
        output = self._run("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", "-X", f"isolation.level={isolation}")
        read = [json.loads(line) for line in output.splitlines()]
        return [[each["partition"], each["offset"], each["key"], each["payload"]] for each in read]

    def join(self, group: str, topics: list[str], protocol: str = "classic", instance: str | None = None) -> None:
        if protocol != "classic":
            raise NotImplementedError(protocol)
        timeout_ms = STATIC_SESSION_TIMEOUT_MS if instance else SESSION_TIMEOUT_MS
        settings = ["-X", "auto.offset.reset=earliest", "-X", f"session.timeout.ms={timeout_ms}"]
        if instance:
            settings += ["-X", f"group.instance.id={instance}"]
        self._member = subprocess.Popen(
            [*self._command, *settings, "-u", "-J", "-G", group, *topics],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read_records, daemon=True).start()
        threading.Thread(target=self._read_rebalances, daemon=True).start()

    def _read_records(self) -> None:
        assert self._member is not None
        assert self._member.stdout is not None
        for line in self._member.stdout:
            each = json.loads(line)
            self._lines.append([each["partition"], each["offset"], each["payload"]])

    def _read_rebalances(self) -> None:
        assert self._member is not None
        assert self._member.stderr is not None
        for line in self._member.stderr:
            sys.stderr.write(line)
            if "assigned:" in line:
                self._assignment = [[name, int(number)] for name, number in re.findall(r"(\S+) \[(\d+)\]", line)]
            elif "revoked:" in line:
                self._assignment = []

    def poll(self, for_ms: int) -> dict[str, Any]:
        time.sleep(for_ms / 1000)  # it polls by itself
        records, self._lines = self._lines, []
        return {"records": records, "assignment": self._assignment}

    def leave(self) -> None:
        assert self._member is not None
        self._member.terminate()
        self._member.wait(CONSUME_TIMEOUT_S)

    def list_topics(self) -> list[str]:
        return sorted(each["topic"] for each in json.loads(self._run("-L", "-J", *PATIENTLY))["topics"])

    def describe_topic(self, topic: str) -> dict[str, int]:
        (described,) = json.loads(self._run("-L", "-J", *PATIENTLY, "-t", topic))["topics"]
        if "error" in described:
            raise RuntimeError(described["error"])
        return {"partitions": len(described["partitions"])}


if __name__ == "__main__":
    kcat = Kcat(sys.argv[1], sys.argv[2:])
    version, library = kcat.version()
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    serve(kcat, {"client": "kcat", "version": version, "library": library, "codecs": codecs})
