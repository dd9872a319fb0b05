"""Faults of gateways: their answers about topics and times."""

from tests.testkit.mutants.mutant import Change, Mutant

RECORD_VALIDATION = "penstock_gateway.produce.record_validation"
TOPIC_CACHE = "penstock_gateway.kafka.topic_cache"

MUTANTS = [
    Mutant(
        "keep_deleted_topics_in_cache",
        "The gateway keeps a topic in its cache after the topic is deleted: clients get the deleted topic's id.",
        [
            Change(TOPIC_CACHE, "            view = self._by_name.pop(name, None)\n", "            view = None\n"),
            Change(TOPIC_CACHE, "        self._by_name.clear()\n        self._by_id.clear()\n", ""),
        ],
    ),
    Mutant(
        "keep_an_old_list_of_topics",
        "The gateway sends the kept bytes of a list of all topics, although the topics have changed.",
        [Change("penstock_gateway.server.encoded_answers", " or kept[0] != response", "")],
        ("tests/unit/gateway/server/test_gateway_encoded_answers.py",),
    ),
    Mutant(
        "begin_the_clients_time_at_the_hand_over",
        "The gateway confirms a request that waited in it for longer than its client: an old copy is stored late.",
        [
            Change(
                "penstock_gateway.produce.produce_service",
                "            timeout_s -= self.clock.monotonic_s() - arrived_s\n",
                "            pass\n",
            )
        ],
        ("tests/unit/gateway/produce/test_gateway_confirmation.py",),
    ),
    Mutant(
        "begin_the_clients_time_with_the_request",
        "The gateway takes the moment when a request begins for that when its bytes came: an old copy is stored late.",
        [Change("penstock_gateway.server.dispatch", "client.produce_arrived_s = arrival.at_s", "pass")],
        ("tests/unit/gateway/server/test_gateway_listener.py",),
    ),
    Mutant(
        "change_lanes_without_waiting",
        "The gateway sends a request in another lane before earlier ones are answered: it may be committed first.",
        [
            Change(
                "penstock_gateway.produce.producer_route",
                " or (self._unanswered and self._waiting[0].is_express != self._is_express)",
                "",
            )
        ],
        ("tests/unit/gateway/produce/test_gateway_flushes.py",),
    ),
    Mutant(
        "land_records_of_standard_topics",
        "The gateway lets a request with any express topic take the express lane: a lost NATS loses standard records.",
        [
            Change(
                "penstock_gateway.produce.produce_service",
                "checked.is_express &= rules.is_express",
                "checked.is_express = rules.is_express or bool(checked.batches and checked.is_express)",
            )
        ],
        ("tests/unit/gateway/produce/test_gateway_produce.py",),
    ),
    Mutant(
        "find_timestamps_one_offset_late",
        "The gateway answers a lookup by time with the offset after the record: a reader misses that record.",
        [
            Change(
                "penstock_gateway.fetch.timestamp_search",
                "each.found = (placed.base_offset + found[0], found[1])",
                "each.found = (placed.base_offset + found[0] + 1, found[1])",
            )
        ],
    ),
    Mutant(
        "accept_small_batches_without_framing",
        "The gateway accepts a small batch whose records cannot be read: its readers stay before it for ever.",
        [
            Change(
                RECORD_VALIDATION,
                "                for _ in checked_slices(plain, header.record_count, limits.records_at_once_max):\n",
                "                for _ in ():\n",
            )
        ],
        ("tests/unit/gateway/produce",),
    ),
    Mutant(
        "accept_large_batches_without_framing",
        "The gateway accepts a large batch whose records cannot be read: its readers stay before it for ever.",
        [
            Change(
                RECORD_VALIDATION,
                "        for _ in checked_slices(plain, header.record_count, limits.slice_records):\n",
                "        for _ in ():\n",
            )
        ],
        ("tests/unit/gateway/produce",),
    ),
    Mutant(
        "accept_gaps_in_the_offsets_of_records",
        "The gateway accepts records whose offsets do not count from 0: records of two batches get one offset.",
        [
            Change(
                "penstock.kafkawire.produced_records",
                "if is_filled and is_exact and offset == index + index:",
                "if is_filled and is_exact:",
            )
        ],
        ("tests/unit/kafkawire/test_kafkawire_produced_records.py",),
    ),
]
