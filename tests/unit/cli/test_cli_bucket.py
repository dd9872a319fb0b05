"""`penstock bucket`: the sources of its settings, its wait for the server, and its output."""

import asyncio
from pathlib import Path

import pytest

import penstock.objectstore.s3  # noqa: F401 - a slow import, which must not count as a part of the wait
from penstock.cli import bucket, main, parse_arguments
from penstock.contracts.errors import Unavailable

URL = "s3://records/prefix?endpoint=http://127.0.0.1:1"
NO_SERVER = ["bucket", "--store-url", f"{URL}&access_key=someone&secret_key=hidden"]


class Server:
    """A fake object store: gives no answer `silent` times, then reports that the bucket was created or found."""

    def __init__(self, silent: int = 0, *, was_made: bool = True) -> None:
        self.silent = silent
        self.was_made = was_made
        self.urls: list[str] = []

    async def make_bucket(self, url: str) -> bool:
        self.urls.append(url)
        if len(self.urls) <= self.silent:
            raise Unavailable("no answer")
        return self.was_made


def run(server: Server, *flags: str) -> int:
    return bucket.run(parse_arguments(["bucket", *flags]), make=server.make_bucket, retry_s=0)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_STORE_URL", "PENSTOCK_ENV_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("was_made", "printed"), [(True, "created bucket records\n"), (False, "found bucket records\n")]
)
def test_it_waits_for_the_server_and_reports_what_it_did(
    capsys: pytest.CaptureFixture[str], was_made: bool, printed: str
) -> None:
    server = Server(silent=3, was_made=was_made)
    assert run(server, "--store-url", URL) == 0
    assert capsys.readouterr().out == printed
    assert server.urls == [URL] * 4


def test_its_settings_come_from_the_environment_and_a_file_as_for_services(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = Server()
    path = tmp_path / "env"
    path.write_text("AWS_ACCESS_KEY_ID=someone\nAWS_SECRET_ACCESS_KEY=hidden\nPENSTOCK_STORE_URL=s3://file\n")
    monkeypatch.setenv("PENSTOCK_ENV_FILE", str(path))
    assert run(server) == 0
    monkeypatch.setenv("PENSTOCK_STORE_URL", "s3://environment")
    assert run(server) == 0
    monkeypatch.setenv("PENSTOCK_ENV_FILE", "/nowhere")
    assert run(server, "--env-file", str(path), "--store-url", "s3://flag") == 0
    keys = "?access_key=someone&secret_key=hidden"
    assert server.urls == [f"s3://{name}{keys}" for name in ("file", "environment", "flag")]


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["bucket"], "penstock: no bucket is named: give --store-url or PENSTOCK_STORE_URL\n"),
        (["bucket", "--store-url", "file:///objects"], "penstock: only a store at s3://bucket has a bucket\n"),
        (["bucket", "--store-url", "s3:///prefix"], "penstock: an s3 address needs a bucket: s3://bucket/prefix\n"),
        (["bucket", "--env-file", "/no"], "penstock: cannot read the env file /no: No such file or directory\n"),
    ],
)
def test_an_impossible_request_is_rejected_at_once(
    argv: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    assert capsys.readouterr().err == printed


def test_a_server_that_never_answers_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    attempts = []

    async def make_once(url: str) -> bool:
        if attempts:
            raise TimeoutError  # as if all the time were over
        attempts.append(url)
        return await bucket.make_bucket(url)

    assert bucket.run(parse_arguments([*NO_SERVER, "--wait-s", "600"]), make=make_once, retry_s=0) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("penstock: cannot make bucket records at http://127.0.0.1:1: ")
    assert printed.endswith("; gave up after 600 s\n")
    assert printed.count("\n") == 1
    assert "hidden" not in printed


async def test_the_wait_for_a_hanging_server_ends_too() -> None:
    async def hang(_url: str) -> bool:
        return await asyncio.get_running_loop().create_future()

    with pytest.raises(Unavailable, match=r"the server does not answer; gave up after 0\.01 s"):
        await bucket.until_made(URL, 0.01, make=hang)
