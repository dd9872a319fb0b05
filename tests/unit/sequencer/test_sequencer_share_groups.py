"""Metrics of sequencers about share groups."""

from penstock.contracts.commands import AlterShareOffsets, ShareOffset
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import rig


@in_virtual_time
async def test_metrics_count_share_groups_and_records_in_flight() -> None:
    async with rig() as built:
        running = await built.start("a", SHARE_GROUPS_LEVEL)
        await until(lambda: built.level == SHARE_GROUPS_LEVEL)
        assert running.metric("share_groups") == 0
        altered = AlterShareOffsets(built.clock.now_ms(), "g", [ShareOffset("t", 0, 0)])
        await built.client.command([built.create_topic("t"), altered], deadline_s=5)
        assert (running.metric("share_groups"), running.metric("share_records")) == (1, 0)
