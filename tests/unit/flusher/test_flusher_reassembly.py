"""Requests that come in parts are completed, or rejected with all their parts."""

import math

import msgspec
from hypothesis import given, strategies as st

from penstock_flusher.reassembly import Reassembly


class Part(msgspec.Struct, frozen=True):
    gateway: str
    request: int
    part: int
    parts: int


def parts_of(request: int, parts: int, gateway: str = "g") -> list[Part]:
    return [Part(gateway, request, part, parts) for part in range(parts)]


def test_a_request_of_one_part_is_complete_at_once() -> None:
    (part,) = parts_of(1, 1)
    assert Reassembly[Part](5.0).add(part, 0.0) == ([part], [])


def test_parts_of_several_gateways_may_mix() -> None:
    reassembly = Reassembly[Part](5.0)
    ours, theirs = parts_of(1, 2), parts_of(1, 2, gateway="h")
    assert reassembly.add(ours[0], 0.0) == ([], [])
    assert reassembly.add(theirs[0], 0.0) == ([], [])
    assert reassembly.add(ours[1], 0.0) == (ours, [])
    assert reassembly.add(theirs[1], 0.0) == (theirs, [])
    assert reassembly.due_s() == math.inf


def test_a_missing_part_ends_the_request() -> None:
    reassembly = Reassembly[Part](5.0)
    parts = parts_of(1, 4)
    reassembly.add(parts[0], 0.0)
    assert reassembly.add(parts[2], 0.0) == ([], [parts[0], parts[2]])
    assert reassembly.add(parts[3], 0.0) == ([], [parts[3]])


def test_parts_with_different_counts_end_the_request() -> None:
    reassembly = Reassembly[Part](5.0)
    first, other = parts_of(1, 3)[0], parts_of(1, 2)[1]
    reassembly.add(first, 0.0)
    assert reassembly.add(other, 0.0) == ([], [first, other])


def test_an_overdue_part_ends_the_request() -> None:
    reassembly = Reassembly[Part](5.0)
    parts = parts_of(1, 3)
    reassembly.add(parts[0], 0.0)
    reassembly.add(parts[1], 4.0)
    assert reassembly.due_s() == 9.0
    assert reassembly.give_up_late(8.9) == []
    assert reassembly.give_up_late(9.0) == parts[:2]
    assert reassembly.give_up_late(99.0) == []


def test_a_request_can_be_ended_by_its_number() -> None:
    reassembly = Reassembly[Part](5.0)
    first = parts_of(1, 3)[0]
    reassembly.add(first, 0.0)
    assert reassembly.give_up("g", 2) == []
    assert reassembly.give_up("g", 1) == [first]
    assert reassembly.give_up_all() == []


@given(st.data())
def test_every_part_comes_out_once_and_requests_are_complete_and_in_order(data: st.DataObject) -> None:
    reassembly = Reassembly[Part](5.0)
    counts = data.draw(st.lists(st.integers(1, 4), max_size=8))
    streams = [parts_of(request, count, gateway=f"g{request % 3}") for request, count in enumerate(counts)]
    sent, out = [], []
    while any(streams):
        stream = data.draw(st.sampled_from([stream for stream in streams if stream]))
        part = stream.pop(0)
        if data.draw(st.integers(0, 9)) == 0:
            continue
        sent.append(part)
        complete, broken = reassembly.add(part, 0.0)
        assert not (complete and broken)
        if complete:
            assert [each.part for each in complete] == list(range(complete[0].parts))
            assert len({(each.gateway, each.request) for each in complete}) == 1
        out += complete + broken
    out += reassembly.give_up_all()
    assert sorted(out, key=repr) == sorted(sent, key=repr)
