"""Announcements and metrics of sequencers about transactions and levels."""

from penstock.contracts.commands import (
    AddPartitionsToTxn,
    EndTxn,
    InitTransactionalProducer,
    PerItem,
    ProducerAllocated,
    TransactionEnded,
    TransactionPartition,
)
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import rig


@in_virtual_time
async def test_announcements_have_the_level_and_metrics_count_ongoing_transactions() -> None:
    async with rig() as built:
        running = await built.start("a", TRANSACTIONS_LEVEL)
        await until(lambda: built.level == TRANSACTIONS_LEVEL)
        now_ms, topic = built.clock.now_ms(), built.create_topic("t")
        _, allocated = await built.client.command(
            [topic, InitTransactionalProducer(now_ms, "tx", 60_000)], deadline_s=5
        )
        assert isinstance(allocated, ProducerAllocated)
        assert built.advanced()[-1].level == TRANSACTIONS_LEVEL
        assert (running.metric("transactional_ids"), running.metric("ongoing_transactions")) == (1, 0)
        producer = (now_ms, "tx", allocated.producer_id, allocated.producer_epoch)
        partitions = [TransactionPartition(topic.topic_id, 0)]
        assert await built.client.command([AddPartitionsToTxn(*producer, partitions)], deadline_s=5) == [
            PerItem([Rejection.NONE])
        ]
        assert running.metric("ongoing_transactions") == 1
        (ended,) = await built.client.command([EndTxn(*producer, True)], deadline_s=5)
        assert isinstance(ended, TransactionEnded)
        assert (running.metric("transactional_ids"), running.metric("ongoing_transactions")) == (1, 0)
