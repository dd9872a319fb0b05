"""`make docs`: generates the blocks of pages that come from code and kept results; `--check` only compares.

The dashboards of Grafana come from tables, too. A page has text written by hand, and blocks between the comments
`made: NAME` and `made: end`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.testkit.docs import (
    access,
    alerts,
    beside_kafka,
    chart,
    compatibility,
    dashboards,
    metrics,
    performance,
    policies,
    settings,
    suites,
)
from tests.testkit.docs.blocks import Maker, fill
from tests.testkit.docs.dashboards.layout import text_of

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
        DOCS / "operating" / "policies.md": policies.makers(),
        DOCS / "suites.md": suites.makers(suites.read_results(), suites.read_causes()),
        chart.CHART / "README.md": chart.makers(),
        DOCS / "performance.md": performance.makers(performance.read_results())
        | beside_kafka.makers(beside_kafka.read_results()),
    }


def files() -> dict[Path, str]:
    """Each file with generated text, and that text."""
    boards = DOCS.parent / "deploy" / "grafana" / "dashboards"
    made = {path: fill(path.read_text(), makers) for path, makers in pages().items()}
    made[chart.CHART / "values.schema.json"] = chart.schema_text()
    return made | {boards / f"{each.name}.json": text_of(each) for each in dashboards.DASHBOARDS}


def main() -> int:
    """Write the files, or with `--check` report those that are not current."""
    stale = []
    for path, made in files().items():
        if not path.exists() or path.read_text() != made:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(made)
    if stale and "--check" in sys.argv[1:]:
        sys.stderr.write(f"not current: {', '.join(stale)}; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
