"""The report of an audit and its findings, as text and as JSON."""

import msgspec

LISTED_MAX = 50  # findings in the text; the JSON has all
_EXPLANATIONS = {
    "live": "live segments",
    "grace": "dead segments in their grace",
    "condemned": "dead segments to be deleted",
    "uncommitted": "segments not yet committed",
    "journal": "snapshots and archive of the journal",
    "unexplained": "unexplained",
}


class Finding(msgspec.Struct, frozen=True, order=True):
    """One defect."""

    kind: str  # a constant in kebab-case, for programs
    subject: str  # an object's key, or topic-partition
    what: str  # a phrase for the user


class Report(msgspec.Struct, kw_only=True):
    """The result of one audit."""

    cluster: str
    topics: int
    partitions: int
    extents: int
    live_bytes: int
    segments_read: int
    batches_read: int
    records_read: int
    bytes_read: int
    seconds: float
    objects: dict[str, int]  # by their explanation
    bytes: dict[str, int]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def as_json(report: Report) -> str:
    """The report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_text(report: Report) -> str:
    """The report as a table and a list of findings."""
    lines = [
        f"cluster {report.cluster}: {report.topics} topics, {report.partitions} partitions, {report.extents} extents",
        f"read {report.records_read:,} records in {report.batches_read:,} batches, {_size(report.bytes_read)} of "
        f"{report.segments_read} segments in {report.seconds:.1f} s",
        "",
        f"  {'the bucket holds':<40}{'objects':>10}{'bytes':>14}",
    ]
    lines += [
        f"  {text:<40}{report.objects[name]:>10,}{_size(report.bytes[name]):>14}"
        for name, text in _EXPLANATIONS.items()
        if report.objects.get(name)
    ]
    lines.append("")
    if report.is_clean:
        lines.append("clean: every object is explained, every live record is there, every checksum is right")
        return "\n".join(lines)
    lines.append(f"{len(report.findings)} findings:")
    lines += [f"  {each.kind}: {each.subject}: {each.what}" for each in report.findings[:LISTED_MAX]]
    if len(report.findings) > LISTED_MAX:
        lines.append(f"  ... and {len(report.findings) - LISTED_MAX} more; --json prints all")
    return "\n".join(lines)


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
