"""The compatibility page says what the code serves, no more and no less."""

import re
from pathlib import Path

from penstock.contracts.topic_configs import TOPIC_CONFIGS
from penstock.kafkawire.api import API_TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "kafka-compatibility.md").read_text()


def test_the_page_lists_every_api_with_the_versions_that_are_served() -> None:
    listed = {
        int(key): (name, int(low), int(high))
        for key, name, low, high in re.findall(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|$", PAGE, re.MULTILINE)
    }
    assert listed == {key: (api.name, api.min_version, api.max_version) for key, api in API_TABLE.items()}


def test_the_page_lists_every_topic_configuration_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `([a-z.]+)` \| `([^`]*)` \|", PAGE, re.MULTILINE))
    assert listed == {name: config.default for name, config in TOPIC_CONFIGS.items()}
