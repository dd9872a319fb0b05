"""Faults of flushers: when and in which order segments are committed."""

from tests.testkit.mutants.mutant import Change, Mutant

FLUSH = "penstock_flusher.flush"

MUTANTS = [
    Mutant(
        "commit_segments_before_upload",
        "The flusher commits a segment before it is stored: acknowledged records can be lost with the upload.",
        [
            Change(
                FLUSH,
                "        built = self._build(flush, new_id)\n",
                "        built = self._build(flush, new_id)\n        flush.uploaded.set()\n",
            )
        ],
    ),
    Mutant(
        "commit_segments_out_of_order",
        "The flusher commits segments in the order of uploads: a producer's later batch overtakes an earlier one.",
        [
            Change(
                FLUSH,
                """\
            await self._upload(flush)
""",
                """\
            await self._upload(flush)
            uploaded = sum(each.uploaded.is_set() for each in self._to_commit)
            self._to_commit.remove(flush)
            self._to_commit.insert(uploaded, flush)
""",
            ),
            Change(
                FLUSH,
                """\
            await self._to_commit[0].uploaded.wait()
""",
                """\
            while not self._to_commit[0].uploaded.is_set():
                await asyncio.sleep(0.01)
""",
            ),
        ],
    ),
    Mutant(
        "commit_segments_whose_upload_failed",
        "The flusher commits a segment although its upload failed: acknowledged records are in no object.",
        [
            Change(
                FLUSH,
                "            flush.built = None\n            self._recent.discard",
                "            self._recent.discard",
            )
        ],
    ),
    Mutant(
        "commit_without_a_confirmation",
        "The flusher commits what gateways have given up: an older copy gets behind newer acknowledged records.",
        [
            Change(
                FLUSH,
                "            flush.dropped.update(given_up(flush, leases))\n",
                "            leases = dict.fromkeys(leases, 60_000)\n",
            )
        ],
    ),
]
