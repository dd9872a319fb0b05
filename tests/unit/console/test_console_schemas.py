"""Messages with schemas on pages, at the API and live, and the settings of the registry."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid
from penstock.schemas.decoding import Decoded, Decoder
from penstock.schemas.registry import parse_address
from penstock_console.app import decoder_of
from penstock_console.config import ConsoleConfig
from penstock_console.web.routes import API
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.schema_registry import SchemaRegistry, framed, serving
from tests.unit.console.console_fakes import FakeRecord
from tests.unit.console.console_rig import Rig
from tests.unit.console.test_console_web import SCRIPT, served
from tests.unit.sequencer.core.core_world import batch

PRICE = {"type": "object", "title": SCRIPT}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as started:
        yield started


def rig_of(registry: SchemaRegistry) -> tuple[Rig, int]:
    """A topic with a decoded message, and one whose schema is unknown."""
    schema_id = registry.register("t-value", PRICE, "JSON")
    rig = Rig(decoder=Decoder(parse_address(registry.url)))
    rig.world.topic()
    rig.world.produce(batch(2))
    rig.kafka.session.records = [
        FakeRecord(offset=0, value=framed(schema_id, b'{"price": 5}')),
        FakeRecord(offset=1, value=framed(7, b"")),
    ]
    return rig, schema_id


async def test_a_page_shows_decoded_values_with_their_schemas_and_errors(registry: SchemaRegistry) -> None:
    rig, schema_id = rig_of(registry)
    async with served(rig) as web:
        page = (await web.get("/topics/t/messages")).text
        assert "&#34;price&#34;: 5" in page and f"#{schema_id}</span>" in page
        assert "schema 7: the registry has no schema of this id" in page
        assert SCRIPT not in page
        records = (await web.get(f"{API}/topics/t/messages")).json["records"]
        assert records[0]["value_schema"] == {"id": schema_id, "type": "JSON", "name": SCRIPT}
        chosen = await web.get(f"{API}/topics/t/messages?filter=value.price%3D%3D%605%60")
        assert [each["offset"] for each in chosen.json["records"]] == [0]


async def test_live_messages_are_decoded(registry: SchemaRegistry) -> None:
    rig, schema_id = rig_of(registry)
    new = FakeRecord(offset=2, value=framed(schema_id, b'{"price": 6}'))
    is_written = False

    def write() -> None:
        nonlocal is_written
        rig.clock.now_s += 300
        if not is_written:
            is_written = True
            rig.kafka.session.records.append(new)

    rig.kafka.session.on_poll = write
    async with served(rig) as web:
        events = (await web.get("/topics/t/tail?filter=value.price%3D%3D%606%60")).text
    found = [each for line in events.splitlines() if line.startswith("data: [") for each in json.loads(line[6:])]
    assert [(each["offset"], each["value_schema"]["id"]) for each in found] == [(2, schema_id)]


def test_the_settings_name_the_registry_its_login_and_its_certificates(
    registry: SchemaRegistry, tmp_path: Path
) -> None:
    assert decoder_of(ConsoleConfig(), ManualClock()) is None
    registry.login = "alice:secret"
    (tmp_path / "password").write_text("secret\n")
    config = ConsoleConfig(
        schema_registry=registry.url.replace("//", "//alice@"),
        schema_registry_password_file=str(tmp_path / "password"),
    )
    decoder = decoder_of(config, ManualClock())
    assert decoder is not None
    assert isinstance(decoder.decode(framed(registry.register("t-value", PRICE, "JSON"), b"1")), Decoded)
    wrong: dict[str, str]
    for wrong in ({"schema_registry": "registry"}, {"schema_registry": "https://r", "schema_registry_ca": "/nowhere"}):
        with pytest.raises(Invalid, match=r"registry|certificates"):
            decoder_of(ConsoleConfig(**wrong), ManualClock())
