"""A streaming query from a topic into SQLite, for a test to kill: NATS STORE FOLDER always|now."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

from penstock.spark import register
from penstock.spark.session import open_session


def main() -> None:
    """Run until killed, or until all present records are read."""
    nats, store, folder, until = sys.argv[1:]
    session = open_session("stream", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    register(session)
    options = {"nats": nats, "store": store, "topics": "events", "startingOffsets": "earliest"}
    limit = "20000" if until == "now" else "1000"  # small, to be killed among many micro-batches; large, to end soon
    rows = session.readStream.format("penstock").options(**options, maxOffsetsPerTrigger=limit).load()

    def deliver(batch: Any, batch_id: int) -> None:
        write(Path(folder) / "sink.sqlite", batch.select("partition", "offset", "value").collect(), batch_id)

    writer = rows.writeStream.foreachBatch(deliver).option("checkpointLocation", str(Path(folder) / "checkpoint"))
    query = (
        writer.trigger(availableNow=True) if until == "now" else writer.trigger(processingTime="0 seconds")
    ).start()
    query.awaitTermination()


def write(sink: Path, rows: list[Any], batch_id: int) -> None:
    """Write a micro-batch in one transaction; a repeated micro-batch changes nothing."""
    with sqlite3.connect(sink, timeout=60) as database:
        if database.execute("insert or ignore into batches values (?)", (batch_id,)).rowcount:
            values = [(row.partition, row.offset, row.value.decode()) for row in rows]
            database.executemany("insert into records values (?, ?, ?)", values)


if __name__ == "__main__":
    main()
