"""An operator that changes the lane of a topic now and then, while producers write to it."""

import asyncio
import random

from penstock.contracts.configs.topics import EXPRESS, LANE, STANDARD
from penstock.kafkawire.api.incremental_alter_configs import (
    API,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.testkit.sim.clients.kafka import Disconnected, KafkaClient

TOPIC_RESOURCE = 2
SET = 0
SWITCHES = 6
REST_S = (0.0, 4.0)
TIMEOUT_S = 10.0


class LaneSwitcher:
    """Sets the lane some times; each lane is as likely, so that some requests change nothing."""

    def __init__(self, client: KafkaClient, topic: str, stream: random.Random) -> None:
        self._client = client
        self._topic = topic
        self._stream = stream

    async def run(self) -> None:
        """Switch, and ignore errors: a lost answer, or a level that is too low."""
        for _ in range(SWITCHES):
            config = AlterableConfig(LANE, SET, self._stream.choice((STANDARD, EXPRESS)))
            resource = AlterConfigsResource(TOPIC_RESOURCE, self._topic, [config])
            connection = await self._client.connect()
            try:
                await connection.ask(API.key, 1, IncrementalAlterConfigsRequest([resource]), TIMEOUT_S)
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()
            await asyncio.sleep(self._stream.uniform(*REST_S))
