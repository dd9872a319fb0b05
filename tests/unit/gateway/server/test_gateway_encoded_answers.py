"""The same large list of all topics is encoded once, and each change of it is seen."""

import msgspec
import pytest

from penstock.kafkawire.api import decode_response, encode_response
from penstock.kafkawire.api.metadata import (
    API as METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.kafkawire.frame import RequestHeader
from penstock_gateway.server.encoded_answers import EncodedAnswers

ALL = MetadataRequest(None)


def header(version: int) -> RequestHeader:
    return RequestHeader(METADATA.key, version, 1, None)


def response(epoch: int = 1) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=i, leader_id=1, leader_epoch=epoch) for i in range(3)]
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=b"t" * 16, partitions=partitions)])


def is_kept(answers: EncodedAnswers, version: int, request: MetadataRequest = ALL) -> bool:
    """Whether an equal answer gets the same bytes, and no other copy of them."""
    (first,), (second,) = (answers.encode(header(version), request, response()) for _ in range(2))
    assert first == second == b"".join(encode_response(METADATA.key, version, response()))
    return first is second


def test_an_equal_list_of_all_topics_is_encoded_once() -> None:
    assert is_kept(EncodedAnswers(2, 1_000), 9)


def test_a_list_that_differs_is_encoded() -> None:
    answers = EncodedAnswers(2, 1_000)
    for epoch in (1, 2, 1):
        (body,) = answers.encode(header(9), ALL, response(epoch))
        assert decode_response(METADATA.key, 9, body) == decode_response(
            METADATA.key, 9, b"".join(encode_response(METADATA.key, 9, response(epoch)))
        )


def test_each_version_has_its_own_bytes_and_the_last_ones_stay() -> None:
    answers = EncodedAnswers(2, 1_000)
    bodies = {version: answers.encode(header(version), ALL, response()) for version in (7, 8, 9)}
    assert answers.encode(header(9), ALL, response()) is bodies[9]
    assert answers.encode(header(8), ALL, response()) is bodies[8]
    assert answers.encode(header(7), ALL, response()) == bodies[7]
    assert answers.encode(header(9), ALL, response()) is not bodies[9]


@pytest.mark.parametrize(
    ("request_", "body_bytes_max"), [(MetadataRequest([MetadataRequestTopic(name="t")]), 1_000), (ALL, 10)]
)
def test_lists_of_named_topics_and_very_large_ones_are_not_kept(request_: MetadataRequest, body_bytes_max: int) -> None:
    assert not is_kept(EncodedAnswers(2, body_bytes_max), 9, request_)


def test_an_answer_with_other_settings_of_the_cluster_is_encoded() -> None:
    answers = EncodedAnswers(2, 1_000)
    first = answers.encode(header(9), ALL, response())
    other = msgspec.structs.replace(response(), controller_id=7)
    assert answers.encode(header(9), ALL, other) != first
