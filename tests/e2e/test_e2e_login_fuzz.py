"""Random frames before a login and after it: the gateway's process lives, and its memory comes back.

`python -m tests.testkit.fuzz.before_login --frames 100000` and `tests.testkit.fuzz.after_login` send more.
"""

import asyncio
import random
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.testkit.clusters.cluster import running
from tests.testkit.clusters.secured_gateway import add_user, secured_gateway
from tests.testkit.fuzz import after_login
from tests.testkit.fuzz.before_login import LISTENER, fuzz, login_settings
from tests.testkit.servers.token_issuer import Issuer, serving

pytestmark = pytest.mark.e2e

FRAMES = 8_000
FRAMES_AFTER_LOGIN = 3_000  # too few to compare memory; the module does that with 100,000


def test_random_frames_before_a_login_stop_no_process_and_take_no_memory(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with (
        running(tmp_path / "data", "--flush-ms", "20") as cluster,
        serving(Issuer()) as keys,
        secured_gateway(cluster, "fuzzed", LISTENER, **login_settings(keys)) as gateway,
    ):
        add_user(cluster, "alice", "secret")
        report = asyncio.run(fuzz(gateway, FRAMES, seed))
        print(report)
        assert report.frames >= FRAMES
        assert report.answers > FRAMES / 20, "the frames reach the mechanisms"
        assert report.is_memory_back
        assert gateway.metric("penstock_gateway_logins_total", outcome="succeeded") == 0
        assert gateway.metric("penstock_gateway_logins_total", outcome="failed") > FRAMES / 50
        admin = AdminClient(
            {
                "bootstrap.servers": gateway.addresses[LISTENER],
                "security.protocol": LISTENER,
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "secret",
            }
        )
        assert admin.list_topics(timeout=60).brokers


def test_random_frames_after_a_login_change_nothing_that_belongs_to_others(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with running(tmp_path / "data", "--flush-ms", "20") as cluster:
        after_login.prepare(cluster)
        with secured_gateway(cluster, "fuzzed", LISTENER, **after_login.SETTINGS) as gateway:
            before = after_login.state(cluster)
            assert [len(records) for records in before.records] == [after_login.RECORDS] * len(after_login.GUARDED)
            report = asyncio.run(after_login.fuzz(gateway, FRAMES_AFTER_LOGIN, seed, warm_up_frames=0))
            print(report)
            assert report.frames >= FRAMES_AFTER_LOGIN
            assert report.answers > FRAMES_AFTER_LOGIN / 20, "the frames reach the handlers"
            assert gateway.metric("penstock_gateway_logins_total", outcome="succeeded") > 0
            assert gateway.metric("penstock_gateway_access_denied_total") > FRAMES_AFTER_LOGIN / 50
            assert after_login.state(cluster) == before
            assert not any(process["restarts"] for process in cluster.processes().values())
