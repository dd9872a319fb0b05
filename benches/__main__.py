"""`python -m benches [--only NAME] [--mib N]`: measure, print a table, write JSON to benches/results."""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator

from benches import (
    access,
    commits,
    compaction,
    composed,
    console_pages,
    encryption,
    failover,
    flush_times,
    greedy,
    groups,
    janitor,
    landing,
    leaving,
    micro,
    reader_failover,
    reading,
    record_check,
    retention,
    snapshots,
    stages,
    starting,
    tls,
    transactions,
    whole,
)
from benches.report import Result, save, table


def main() -> int:
    """Run the chosen benches and print their results; a missed budget is not an error."""
    parser = argparse.ArgumentParser(prog="benches")
    parser.add_argument("--mib", type=int, default=2048, help="MiB for the largest load (%(default)s)")
    parser.add_argument("--records", type=int, default=200, help="records in the latency benches (%(default)s)")
    parser.add_argument("--only", action="append", help="run only these benches")
    parser.add_argument("--keep", metavar="FILE", help="also write the JSON to FILE, for docs/performance.md")
    arguments = parser.parse_args()
    benches: dict[str, Callable[[], Iterator[Result]]] = {
        "codec": micro.codec,
        "access": access.costs,
        "encryption": encryption.costs,
        "records": record_check.record_check,
        "segment": micro.segment,
        "machine": micro.machine,
        "commit-rate": micro.commit_rate,
        "compaction": compaction.machine,
        "console": console_pages.pages,
        "retention": retention.machine,
        "janitor": janitor.costs,
        "snapshot": snapshots.costs,
        "commit": commits.latency,
        "commits": commits.throughput,
        "transactions": transactions.transactions,
        "throughput": lambda: whole.throughput(arguments.mib),
        "timer-alone": whole.timer_alone,
        "latency": lambda: whole.latency(arguments.records),
        "stages": stages.stages,
        "starts": starting.starts,
        "tls": lambda: tls.costs(arguments.mib // 8),
        "flush-times": lambda: flush_times.waits(10 * arguments.records),
        "flush-times-local": lambda: flush_times.local_waits(10 * arguments.records),
        "landing": lambda: landing.waits(10 * arguments.records),
        "failover": failover.pauses,
        "leaving": leaving.pauses,
        "groups": groups.rebalances,
        "reading": lambda: reading.requests(arguments.mib // 8),
        "reading-latency": lambda: reading.latency(arguments.records),
        "replays": lambda: reading.replays(arguments.mib // 2),
        "idlers": reading.idlers,
        "greedy": greedy.memory,
        "reader-failover": reader_failover.recovery,
    }
    if "compose" in (arguments.only or ()):  # needs a Docker engine, so it runs only on request
        benches["compose"] = lambda: composed.from_nothing(arguments.mib)
    unknown = set(arguments.only or ()) - set(benches)
    if unknown:
        parser.error(f"no bench {', '.join(sorted(unknown))}; there are {', '.join(benches)}")
    results: list[Result] = []
    for name in arguments.only or benches:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        results += benches[name]()
    print(table(results))
    path = save(results, "latest")
    if arguments.keep:
        shutil.copyfile(path, arguments.keep)
    print(f"\nas JSON in {arguments.keep or path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
