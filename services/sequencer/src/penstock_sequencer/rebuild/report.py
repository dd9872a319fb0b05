"""The findings and results of a rebuild, as text for people and as JSON for programs."""

import msgspec

from penstock.contracts.ids import topic_id_text, ulid_text

LISTED_MAX = 20  # names of one kind in the text; the JSON has all


class Report(msgspec.Struct, kw_only=True):
    """The findings and results of a rebuild; times in milliseconds since 1970."""

    cluster: str
    is_dry_run: bool = False
    # Found in snapshots and archive.
    snapshot_sequence: int = 0  # 0: none, so the archive was read from the first entry on
    damaged_snapshots: list[str] = []
    archive_objects: int = 0
    archived_sequence: int = 0  # the last entry in the archive or the snapshot
    archived_until_ms: int = 0  # the state machine's clock there
    damaged_archive: list[str] = []
    unreached_archive: int = 0  # objects after a gap
    # Found in the footers of segments.
    young_segments: int = 0  # that may have been committed after the archive's end
    passed_by_segments: list[str] = []  # recovered, although their flushers have later ones in the archive
    future_segments: list[str] = []  # left out: born too late for the store's and this machine's clock
    recovered_segments: list[str] = []
    damaged_segments: list[str] = []
    refused_segments: dict[str, str] = {}
    recovered_batches: int = 0
    recovered_records: int = 0
    repeated_batches: int = 0  # sent again by their producers, and in the journal already
    refused_batches: dict[str, int] = {}
    leaps: int = 0  # batches of producers that were accepted although the batch before them is lost
    adopted_topics: dict[str, int] = {}  # made under a new name, because only the id is known: -> records
    deleted_topic_batches: int = 0
    grown_topics: dict[str, int] = {}  # -> partitions
    aborted_transactions: int = 0  # that were ongoing at the end: their result is lost
    forgotten_transactional_ids: int = 0
    # Express segments that were lost with their landing store.
    lost_segments: list[str] = []
    lost_records: int = 0  # an upper bound: batches may have gaps
    # Made.
    next_producer_id: int = 0
    first_sequence: int = 0  # of the new journal
    journal_created: str = ""

    @property
    def has_gap(self) -> bool:
        """Whether the archive has objects after a gap."""
        return bool(self.unreached_archive)


def segment_name(segment_id: bytes) -> str:
    """A segment's id as text."""
    return ulid_text(segment_id)


def adopted_name(topic_id: bytes) -> str:
    """The new name of a topic of which only the id is known."""
    return f"recovered-{topic_id_text(topic_id)}"


def as_json(report: Report) -> str:
    """The report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_text(report: Report) -> str:
    """The report in a few sentences."""
    return "\n".join([*_archive_lines(report), *_segment_lines(report), *_result_lines(report)])


def _archive_lines(report: Report) -> list[str]:
    start = f"snapshot at entry {report.snapshot_sequence}" if report.snapshot_sequence else "no snapshot"
    lines = [
        f"cluster {report.cluster}: {start}, {report.archive_objects} archive objects, exact up to entry "
        f"{report.archived_sequence}",
        *_listed("damaged snapshot", report.damaged_snapshots),
        *_listed("damaged archive object", report.damaged_archive),
    ]
    if report.has_gap:
        lines.append(
            f"  the archive has a gap there: {report.unreached_archive} objects come after it and cannot be used, "
            f"because their entries build on the missing ones"
        )
    return lines


def _segment_lines(report: Report) -> list[str]:
    lines = [
        f"after that, {len(report.recovered_segments)} segments gave {report.recovered_records} records in "
        f"{report.recovered_batches} batches; {report.repeated_batches} batches were in the journal already",
        *_listed("damaged segment, left out", report.damaged_segments),
        *_listed("segment born in the future, left out", report.future_segments),
        *_listed("segment rejected", [f"{name}: {reason}" for name, reason in report.refused_segments.items()]),
        *(f"  {count} batches rejected: {name}" for name, count in report.refused_batches.items()),
        *(f"  topic {name} grown to {count} partitions" for name, count in report.grown_topics.items()),
        *(f"  topic {name} made for {count} records of a topic whose name is lost" for name, count in _adopted(report)),
    ]
    if report.deleted_topic_batches:
        lines.append(f"  {report.deleted_topic_batches} batches of deleted topics left out")
    if report.passed_by_segments:
        lines.append(
            f"  {len(report.passed_by_segments)} segments are older than other commits of their flushers: they were "
            f"given up, or named by a clock that stepped back. They were recovered too"
        )
    if report.aborted_transactions:
        lines.append(
            f"  {report.aborted_transactions} transactions aborted that were ongoing, or whose end is lost. Their "
            f"producers, and {report.forgotten_transactional_ids} transactional ids in all, must start again"
        )
    if report.lost_segments:
        lines.append(
            f"  {report.lost_records} records are lost, in {len(report.lost_segments)} segments that "
            f"were only in the landing store. Their offsets stay, without records"
        )
    if report.leaps:
        lines.append(f"  {report.leaps} batches of producers were accepted although the batch before them is lost")
    return lines


def _result_lines(report: Report) -> list[str]:
    if report.is_dry_run:
        return [f"dry run: nothing was changed; the new journal would start with entry {report.first_sequence}"]
    return [f"the new journal starts with entry {report.first_sequence}; it was made at {report.journal_created}"]


def _adopted(report: Report) -> list[tuple[str, int]]:
    return list(report.adopted_topics.items())


def _listed(kind: str, items: list[str]) -> list[str]:
    lines = [f"  {kind}: {item}" for item in items[:LISTED_MAX]]
    return [*lines, f"  ... and {len(items) - LISTED_MAX} more"] if len(items) > LISTED_MAX else lines
