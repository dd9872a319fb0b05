"""Metrics behind a token: health stays open, and a wrong token gets 401."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from penstock.contracts.errors import Invalid
from penstock.runtime.process.health import Health, HttpServer, new_registry

TOKEN = "0123456789abcdef-secret"
BEARER = f"Bearer {TOKEN}"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nanother line\n")
    return path


@pytest.fixture
async def server(token_file: Path) -> AsyncIterator[HttpServer]:
    made = HttpServer(Health(), new_registry(), "127.0.0.1", 0, token_file=str(token_file))
    await made.open()
    yield made
    await made.close()


async def get(server: HttpServer, path: str, authorization: str | None = None) -> tuple[int, str, str]:
    headers = {} if authorization is None else {"Authorization": authorization}
    url = f"http://{server.address}{path}"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
        return answer.status, answer.headers.get("WWW-Authenticate", ""), await answer.text()


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize("given", [BEARER, f"bearer {TOKEN}", basic(f"any-user:{TOKEN}")])
async def test_metrics_come_with_the_token(server: HttpServer, given: str) -> None:
    status, _, text = await get(server, "/metrics", given)
    assert (status, "process_cpu_seconds_total" in text) == (200, True)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        "Bearer another line",
        "Bearer é" + TOKEN,
        TOKEN,
        f"Token {TOKEN}",
        "Basic !",
        basic(TOKEN),
        basic(f"{TOKEN}:"),
        basic("any-user:wrong"),
    ],
)
async def test_without_the_token_the_answer_is_401_and_names_the_ways_to_log_in(
    server: HttpServer, given: str | None
) -> None:
    for path in ("/metrics", "/unknown"):
        status, ways, text = await get(server, path, given)
        assert (status, ways) == (401, 'Bearer realm="penstock", Basic realm="penstock"')
        assert "process_cpu" not in text
        assert TOKEN not in text


@pytest.mark.parametrize("path", ["/ready", "/health"])
async def test_probes_need_no_token(server: HttpServer, path: str) -> None:
    status, _, text = await get(server, path)
    assert status in (200, 503)
    assert '"ready": false' in text


def replace(path: Path, text: str | None) -> None:
    path.unlink()
    if text is not None:
        path.write_text(text)


async def test_a_replaced_token_counts_at_once_and_a_lost_file_opens_nothing(
    server: HttpServer, token_file: Path
) -> None:
    replace(token_file, "fedcba9876543210\n")
    assert (await get(server, "/metrics", BEARER))[0] == 401
    assert (await get(server, "/metrics", "Bearer fedcba9876543210"))[0] == 200
    replace(token_file, None)
    for given in ("Bearer fedcba9876543210", "Bearer ", None):
        assert (await get(server, "/metrics", given))[0] == 401


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "No such file"), (b"", "at least 16"), (b"short", "at least 16"), (b"\xff" * 20, "it is no text")],
)
async def test_a_server_does_not_start_without_a_good_token(tmp_path: Path, text: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_bytes(text)
    server = HttpServer(Health(), new_registry(), "127.0.0.1", 0, token_file=str(path))
    with pytest.raises(Invalid, match=reason):
        await server.open()
    await server.close()
