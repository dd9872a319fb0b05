"""Requests that came in parts become whole, or are given up as a whole."""

import math

import msgspec
from hypothesis import given, strategies as st

from penstock_flusher.reassembly import Reassembly


class Bit(msgspec.Struct, frozen=True):
    gateway: str
    request: int
    part: int
    parts: int


def bits(request: int, parts: int, gateway: str = "g") -> list[Bit]:
    return [Bit(gateway, request, part, parts) for part in range(parts)]


def test_a_request_of_one_part_is_whole_at_once() -> None:
    (bit,) = bits(1, 1)
    assert Reassembly[Bit](5.0).add(bit, 0.0) == ([bit], [])


def test_parts_of_several_gateways_may_mix() -> None:
    reassembly = Reassembly[Bit](5.0)
    ours, theirs = bits(1, 2), bits(1, 2, gateway="h")
    assert reassembly.add(ours[0], 0.0) == ([], [])
    assert reassembly.add(theirs[0], 0.0) == ([], [])
    assert reassembly.add(ours[1], 0.0) == (ours, [])
    assert reassembly.add(theirs[1], 0.0) == (theirs, [])
    assert reassembly.due_s() == math.inf


def test_a_missing_part_gives_up_the_request() -> None:
    reassembly = Reassembly[Bit](5.0)
    parts = bits(1, 4)
    reassembly.add(parts[0], 0.0)
    assert reassembly.add(parts[2], 0.0) == ([], [parts[0], parts[2]])
    assert reassembly.add(parts[3], 0.0) == ([], [parts[3]])


def test_parts_that_disagree_about_their_number_are_given_up() -> None:
    reassembly = Reassembly[Bit](5.0)
    first, other = bits(1, 3)[0], bits(1, 2)[1]
    reassembly.add(first, 0.0)
    assert reassembly.add(other, 0.0) == ([], [first, other])


def test_a_part_that_does_not_come_in_time_gives_up_the_request() -> None:
    reassembly = Reassembly[Bit](5.0)
    parts = bits(1, 3)
    reassembly.add(parts[0], 0.0)
    reassembly.add(parts[1], 4.0)
    assert reassembly.due_s() == 9.0
    assert reassembly.give_up_late(8.9) == []
    assert reassembly.give_up_late(9.0) == parts[:2]
    assert reassembly.give_up_late(99.0) == []


def test_a_request_can_be_given_up_by_name() -> None:
    reassembly = Reassembly[Bit](5.0)
    first = bits(1, 3)[0]
    reassembly.add(first, 0.0)
    assert reassembly.give_up("g", 2) == []
    assert reassembly.give_up("g", 1) == [first]
    assert reassembly.give_up_all() == []


@given(st.data())
def test_every_part_comes_out_once_and_whole_requests_are_complete_and_in_order(data: st.DataObject) -> None:
    reassembly = Reassembly[Bit](5.0)
    counts = data.draw(st.lists(st.integers(1, 4), max_size=8))
    streams = [bits(request, count, gateway=f"g{request % 3}") for request, count in enumerate(counts)]
    sent, out = [], []
    while any(streams):
        stream = data.draw(st.sampled_from([stream for stream in streams if stream]))
        bit = stream.pop(0)
        if data.draw(st.integers(0, 9)) == 0:
            continue
        sent.append(bit)
        whole, torn = reassembly.add(bit, 0.0)
        assert not (whole and torn)
        if whole:
            assert [bit.part for bit in whole] == list(range(whole[0].parts))
            assert len({(bit.gateway, bit.request) for bit in whole}) == 1
        out += whole + torn
    out += reassembly.give_up_all()
    assert sorted(out, key=repr) == sorted(sent, key=repr)
