"""A librdkafka producer that sends as fast as it can, the partitions in turn."""

from confluent_kafka import KafkaError, Message, Producer

from benches.kafka.loads.load import Start
from benches.kafka.loads.serving import Meter, serve

RECORDS_PER_CALL = 500
POLL_S = 0.005


def _check(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"a record was not delivered: {error}")


def produce(start: Start, meter: Meter) -> None:
    """Produce for ever; a record counts when the client's queue has lost it, which is its acknowledgement."""
    settings = {"delivery.report.only.error": True, "on_delivery": _check, **start.load.settings}
    producer = Producer({"bootstrap.servers": start.bootstrap, **settings})
    producer.list_topics(start.topic, timeout=30)
    value = bytes(start.load.record_bytes)
    queued = acknowledged = call = 0
    while True:
        left = RECORDS_PER_CALL
        while left:
            # new dicts each time: the client marks the dicts that it rejects, and then never accepts them
            batch = [{"value": value} for _ in range(left)]
            accepted = producer.produce_batch(start.topic, batch, partition=call % start.partitions)
            queued, left = queued + accepted, left - accepted
            producer.poll(POLL_S if left else 0)
            done = queued - len(producer) - acknowledged
            if done > 0:
                acknowledged += done
                meter.add(done * start.load.record_bytes, done)
        call += 1


if __name__ == "__main__":
    serve(produce)
