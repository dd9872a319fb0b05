"""The elements of a message are counted at any depth, and no further than the caller asks."""

import pytest

from penstock.kafkawire.api.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from penstock.kafkawire.schema import has_more_elements


@pytest.mark.parametrize("elements_max", range(12))
def test_the_elements_of_all_arrays_count(elements_max: int) -> None:
    partitions = [MetadataResponsePartition(replica_nodes=[1, 2]), MetadataResponsePartition(isr_nodes=[1])]
    topics = [MetadataResponseTopic(), MetadataResponseTopic(partitions=partitions)]  # 2 + 2 + 2 + 1
    assert has_more_elements(MetadataResponse(topics=topics), elements_max) == (elements_max < 7)
