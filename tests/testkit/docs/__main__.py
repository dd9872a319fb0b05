"""`make docs`: generates the blocks of pages that come from code and kept results; `--check` only compares.

A page has text written by hand, and blocks between the comments `made: NAME` and `made: end`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.testkit.docs import access, alerts, beside_kafka, compatibility, metrics, performance, settings
from tests.testkit.docs.blocks import Maker, fill

DOCS = Path(__file__).parents[3] / "docs"


def pages() -> dict[Path, Mapping[str, Maker]]:
    """Each page with generated blocks, and the makers of these."""
    return {
        DOCS / "kafka-compatibility.md": compatibility.makers(
            compatibility.read_results(), compatibility.read_results(compatibility.COMPOSED)
        ),
        DOCS / "operating" / "reference.md": settings.makers(),
        DOCS / "operating" / "metrics.md": metrics.makers(),
        DOCS / "operating" / "monitoring.md": alerts.makers(),
        DOCS / "operating" / "security.md": access.makers(),
        DOCS / "performance.md": performance.makers(performance.read_results())
        | beside_kafka.makers(beside_kafka.read_results()),
    }


def main() -> int:
    """Write the pages, or with `--check` report those that are not current."""
    stale = []
    for path, makers in pages().items():
        page = path.read_text()
        made = fill(page, makers)
        if made != page:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(made)
    if stale and "--check" in sys.argv[1:]:
        sys.stderr.write(f"not current: {', '.join(stale)}; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
