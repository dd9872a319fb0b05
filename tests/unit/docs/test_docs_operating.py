"""The operating page knows every setting and names no metric that does not exist."""

import re
from pathlib import Path

import msgspec
import pytest

from penstock.runtime.process.config import ServiceConfig
from penstock_cacher.config import CacherConfig
from penstock_compactor.config import CompactorConfig
from penstock_flusher.config import FlusherConfig
from penstock_gateway.config import GatewayConfig
from penstock_janitor.config import JanitorConfig
from penstock_sequencer.config import SequencerConfig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "OPERATING.md").read_text()
KINDS = [ServiceConfig, GatewayConfig, FlusherConfig, SequencerConfig, CacherConfig, CompactorConfig, JanitorConfig]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_listed_with_its_default(kind: type[ServiceConfig]) -> None:
    listed = dict(re.findall(r"^\| `([a-z_0-9]+)` \| (?:`(.*?)`|\(empty\)) \|", PAGE, re.MULTILINE))
    for field in msgspec.structs.fields(kind):
        assert listed.get(field.name) == str(field.default), field.name


def test_every_metric_that_is_named_exists() -> None:
    sources = "".join(path.read_text() for folder in ("libs", "services") for path in (ROOT / folder).rglob("*.py"))
    for metric in re.findall(r"`(penstock_[a-z_]+)`", PAGE):
        assert f'"{metric.removesuffix("_total")}"' in sources, metric
