"""Faults of stores: objects and names that a loss takes although their writers have an answer."""

from tests.testkit.mutants.mutant import Change, Mutant

FILES = "penstock.objectstore.file.store"
QUORUM = "penstock.objectstore.quorum.store"
QUORUM_TESTS = ("tests/unit/objectstore/test_objectstore_quorum.py",)
TESTS = ("tests/unit/objectstore/test_objectstore_file.py",)

MUTANTS = [
    Mutant(
        "store_unsynced_bytes",
        "The file store names an object before its bytes are synced: after a loss of power the object is empty.",
        [Change(FILES, "        sync_file(descriptor, self._platform)\n", "")],
        TESTS,
    ),
    Mutant(
        "store_unsynced_names",
        "The file store confirms a put before the name is synced: after a loss of power the object is gone.",
        [
            Change(
                FILES,
                "            self._sync_folders(final.parent)\n            return etag\n",
                "            return etag\n",
            )
        ],
        TESTS,
    ),
    Mutant(
        "complete_unsynced_uploads",
        "The file store completes an upload before the name is synced: after a loss of power the object is gone.",
        [
            Change(
                FILES,
                "        self._create(staged, final)\n        self._sync_folders(final.parent)\n",
                "        self._create(staged, final)\n",
            )
        ],
        TESTS,
    ),
    Mutant(
        "report_unsynced_conflicts",
        "The file store reports a conflict before the existing name is synced: its caller counts it as success.",
        [
            Change(
                FILES,
                "            self._sync_folders(final.parent)  # see _put\n            if staged",
                "            if staged",
            )
        ],
        TESTS,
    ),
    Mutant(
        "retry_puts_as_conflicts",
        "The retrying store reports a conflict with its own earlier attempt: the flusher gives a stored segment up.",
        [
            Change(
                "penstock.objectstore.retrying",
                "                if in_doubt and (etag := await self._etag_if_equal(key, body)) is not None:\n",
                "                if (etag := None) is not None:\n",
            )
        ],
        ("tests/unit/objectstore",),
    ),
    Mutant(
        "acknowledge_one_of_three_copies",
        "A put to three landing stores is acknowledged when one has the object: with that store the records are gone.",
        [Change(QUORUM, "- _count_failed(puts) >= NEEDED\n", "- _count_failed(puts) >= 1\n")],
        QUORUM_TESTS,
    ),
    Mutant(
        "list_one_of_three_stores",
        "A listing of three landing stores takes the first answer: a rebuild takes stored segments for lost.",
        [Change(QUORUM, "- _count_failed(calls) < NEEDED:\n", "- _count_failed(calls) < 1:\n")],
        QUORUM_TESTS,
    ),
]
