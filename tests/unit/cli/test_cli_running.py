"""How commands find their cluster: in flags, environment, env file, or the folder of `penstock up`."""

import argparse
from pathlib import Path

import pytest

from penstock.cli.data_folder import record_store, take_folder, write_client_file
from penstock.cli.running import add_cluster_flags, read_cluster
from penstock.contracts.errors import Invalid
from penstock.spark.config import ClusterAddress


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NATS_URL", "STORE_URL", "CLUSTER", "ENV_FILE", "NATS_USER", "NATS_PASSWORD"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)


def read(*argv: str) -> ClusterAddress:
    parser = argparse.ArgumentParser()
    add_cluster_flags(parser)
    return read_cluster(parser.parse_args(argv))


def test_the_addresses_come_from_the_folder_of_penstock_up(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    write_client_file(tmp_path / "nats", "nats://127.0.0.1:14300", "up", "secret")
    with take_folder(tmp_path):
        found = read("--data", str(tmp_path))
    assert found == ClusterAddress(
        "default", "nats://127.0.0.1:14300", "up", "secret", f"file://{tmp_path / 'objects'}"
    )


def test_the_store_is_the_one_that_penstock_up_uses(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    write_client_file(tmp_path / "nats", "nats://127.0.0.1:14300", "up", "secret")
    record_store(tmp_path, "s3://bucket/prefix")
    with take_folder(tmp_path):
        assert read("--data", str(tmp_path)).store_url == "s3://bucket/prefix"
        assert read("--data", str(tmp_path), "--store", "s3://other").store_url == "s3://other"


def test_a_stopped_penstock_up_is_reported_as_stopped(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    write_client_file(tmp_path / "nats", "nats://127.0.0.1:14300", "up", "secret")
    with pytest.raises(Invalid, match=f"the `penstock up` of {tmp_path} does not run"):
        read("--data", str(tmp_path))
    take_folder(tmp_path).close()
    with pytest.raises(Invalid, match=f"the `penstock up` of {tmp_path} does not run"):
        read("--data", str(tmp_path))


def test_flags_have_priority_over_the_environment_and_that_over_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "env"
    path.write_text(
        "PENSTOCK_NATS_URL=nats://file\nPENSTOCK_NATS_USER=me\nPENSTOCK_NATS_PASSWORD=secret\n"
        "PENSTOCK_STORE_URL=s3://bucket\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n"
    )
    assert read("--env-file", str(path)) == ClusterAddress(
        "default", "nats://file", "me", "secret", "s3://bucket?access_key=a&secret_key=b"
    )
    monkeypatch.setenv("PENSTOCK_NATS_URL", "nats://environment")
    assert read("--env-file", str(path)).nats_url == "nats://environment"
    assert read("--env-file", str(path), "--nats-url", "nats://flag", "--cluster", "c").nats_url == "nats://flag"


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(
        ClusterAddress("default", "nats://u:secret@h", "u", "secret", "s3://b?secret_key=secret")
    )


@pytest.mark.parametrize(
    ("argv", "error_text"),
    [
        (("--data", "/nowhere"), "no `penstock up` has run in /nowhere"),
        (("--nats-url", "nats://n"), "no object store is named"),
        (("--nats-url", "nats://n", "--store", "file:///s", "--cluster", "a.b"), "cluster"),
    ],
)
def test_a_cluster_that_cannot_be_found_is_an_error_with_its_reason(argv: tuple[str, ...], error_text: str) -> None:
    with pytest.raises(Invalid, match=error_text):
        read(*argv)


def test_a_command_that_reads_no_objects_needs_no_store() -> None:
    parser = argparse.ArgumentParser()
    add_cluster_flags(parser, with_store=False)
    found = read_cluster(parser.parse_args(["--nats-url", "nats://n"]))
    assert (found.nats_url, found.cluster) == ("nats://n", "default")
