"""The bytes of flush messages: uncopied, unless they would keep much other memory alive."""

from penstock.contracts.codec import pack
from penstock.contracts.messages import FlushRequest
from penstock_flusher.buffer import Reason
from penstock_flusher.fragments import compact
from tests.unit.flusher.flusher_fakes import FakeInbound, Rig, produce

MIB = 1024 * 1024


def test_batches_that_are_most_of_their_buffer_are_not_copied() -> None:
    frame, message = bytearray(1000), bytes(500)
    batches = [memoryview(frame)[10:400], memoryview(frame)[400:990], memoryview(message)[20:]]
    assert [each.obj for each in compact(batches)] == [frame, frame, message]
    assert all(one is other for one, other in zip(compact(batches), batches, strict=True))


def test_batches_that_are_little_of_their_buffer_are_copied() -> None:
    frame, message = bytearray(b"x" * MIB), bytes(500)
    small, whole = compact([memoryview(frame)[1000:1100], memoryview(message)])
    assert bytes(small) == b"x" * 100
    assert isinstance(small.obj, bytes) and len(small.obj) == 100
    assert whole.obj is message


async def test_a_message_in_several_buffers_is_stored_as_one_in_a_single_buffer() -> None:
    rig = Rig()
    request = FlushRequest("g1", [produce(1, 100, 200), produce(2, 300)])
    payload = [memoryview(bytes([number]) * length) for number, length in enumerate((100, 200, 300))]
    for buffers in ([b"".join(pack(request, payload))], pack(request, payload)):
        inbound = FakeInbound(b"".join(buffers))
        inbound.buffers = tuple(buffers)
        await rig.intake.handle(inbound)
    fragments = rig.buffer.close(Reason.TIMER, rig.clock.monotonic_s())
    one, other = fragments[:2], fragments[2:]
    assert [each.payload for each in one] == [each.payload for each in other]
    assert [each.size_bytes for each in one] == [300, 300]
