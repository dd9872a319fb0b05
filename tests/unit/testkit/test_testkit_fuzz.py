"""The fuzzer's frames follow from the seed, reach every API, and never surprise the decoder; it finds leaks."""

import random
from collections import Counter
from typing import Any

import pytest

from penstock.kafkawire.api import API_TABLE, REQUEST_ELEMENTS_MAX, decode_request, serves
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.frame import read_request_header
from penstock.kafkawire.schema import has_more_elements
from tests.testkit.fuzz.canary import Result
from tests.testkit.fuzz.frames import DAMAGES, Frames, with_length
from tests.testkit.fuzz.memory import Memory, grown
from tests.testkit.fuzz.run import Report
from tests.testkit.fuzz.values import Requests

FRAMES = 2_000
FRAMES_MAX = 20_000  # chance misses no API for so long: the rarest is one of 271 frames


def decodes(frame: bytes) -> bool:
    """Whether the gateway would give it to a handler; any other error than `DecodeError` fails the test."""
    try:
        header, position = read_request_header(frame)
        if serves(header.api_key, header.api_version):
            decode_request(header.api_key, header.api_version, frame, position)
            return True
    except DecodeError:
        pass
    return False


def test_the_same_seed_makes_the_same_frames() -> None:
    first, second, other = (Frames(random.Random(seed)) for seed in (7, 7, 8))
    frames = [first.next() for _ in range(200)]
    assert frames == [second.next() for _ in range(200)]
    assert frames != [other.next() for _ in range(200)]


def test_frames_reach_every_api_and_damaged_ones_are_rejected_in_words() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    frames = Frames(random.Random(seed))
    reached = set()
    for number in range(FRAMES_MAX):
        if number >= FRAMES and reached == set(API_TABLE):
            break
        frame = frames.next()
        is_decoded = decodes(frame.data[4:])
        assert is_decoded or not frame.is_valid, f"{frame.api_key} {frame.version}"
        reached.add(frame.api_key)
    assert reached == set(API_TABLE)


def test_every_damage_changes_frames() -> None:
    chance = random.Random(1)
    for damage in DAMAGES:
        frame = bytes(range(64))
        assert any(damage(chance, frame) != with_length(frame) for _ in range(20)), damage.__name__


def test_requests_with_long_arrays_stay_just_below_the_limit_of_a_request() -> None:
    requests = Requests(random.Random(3))
    found = [requests.with_many_elements(API_TABLE[19], 7) for _ in range(20)]
    assert any(has_more_elements(request, REQUEST_ELEMENTS_MAX // 2) for request in found)
    assert not any(has_more_elements(request, REQUEST_ELEMENTS_MAX) for request in found)


def report(**found: Any) -> Report:
    """A report with these facts, of a run in which nothing else happened."""
    nothing: dict[str, Any] = {"seed": 1, "seconds": 60.0, "sent": Counter(), "wrong": [], "canary": Result()}
    nothing |= {"restarts": {}, "before": {}, "warm": {}, "after": {}, "restarted": {}, "traces": [], "stalls": []}
    return Report(**nothing | found)


def test_a_full_cache_and_kept_arenas_are_no_growth() -> None:
    warm = {"gateway-1": Memory(132 << 20, blocks=330_000), "flusher-1": Memory(58 << 20, 4 << 20)}
    after = {"gateway-1": Memory(165 << 20, blocks=340_000), "flusher-1": Memory(89 << 20, 34 << 20)}
    assert grown(warm, after) == []


def test_objects_and_buffers_that_stay_are_growth() -> None:
    warm = {"gateway-1": Memory(132 << 20, blocks=330_000), "flusher-1": Memory(58 << 20, 4 << 20)}
    after = {"gateway-1": Memory(165 << 20, blocks=400_000), "flusher-1": Memory(89 << 20, 4 << 20)}
    resident, blocks = grown(warm, after)
    assert blocks == "gateway-1 grew from 330000 to 400000 blocks in use"
    assert resident.startswith("flusher-1 grew")
    (kept,) = grown(warm, {"gateway-1": Memory(458 << 20, blocks=330_000)})
    assert kept.startswith("gateway-1 grew")


def test_state_is_no_growth_of_its_process() -> None:
    warm, after = {"sequencer-1": Memory(70 << 20, blocks=300_000)}, {"sequencer-1": Memory(97 << 20, blocks=380_000)}
    restarted = {"sequencer-1": Memory(85 << 20, blocks=370_000)}
    assert report(seconds=600.0, warm=warm, after=after, restarted=restarted).findings == []
    (leak,) = report(seconds=600.0, warm=warm, after=after, restarted=warm).findings
    assert leak == "sequencer-1 grew from 300000 to 380000 blocks in use"


@pytest.mark.parametrize(("timer_lag_ms", "late"), [(49.0, ["round 7"]), (51.0, [])])
def test_an_undecided_produce_is_late_where_the_machine_had_time(timer_lag_ms: float, late: list[str]) -> None:
    canary = Result(undecided=["round 7"], timer_lags_ms=[timer_lag_ms], latencies_ms={"Fetch": [1.0]})
    assert (report(canary=canary).late, report(canary=canary).findings) == (late, [])


@pytest.mark.parametrize(("latency_ms", "late"), [(1_000.0, []), (1_001.0, ["an answer took 1001 ms"])])
def test_a_slow_answer_is_late(latency_ms: float, late: list[str]) -> None:
    canary = Result(timer_lags_ms=[1.0], latencies_ms={"Fetch": [latency_ms]})
    assert report(canary=canary).late == late
