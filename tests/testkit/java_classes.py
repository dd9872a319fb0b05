"""Spark's classes as Java has them in memory, in a file: a third of the work of every start of Spark is saved.

`python -m tests.testkit.java_classes` makes the file for the environment that it runs in; Java does without where it is
missing, or was made by another Java or for other jars.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CLASSES = Path(sys.prefix) / "classes.jsa"
WRITE_TIMEOUT_S = 900.0  # it is made beside everything else


def options() -> str:
    """What lets a Java use the file; nothing of that is worth a word in its output."""
    return f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""


def write(java_options: str) -> None:
    """Start Spark, use it a little, and have its Java write down at its end which classes it had."""
    from penstock.spark import session as sessions

    with TemporaryDirectory(dir=CLASSES.parent) as folder:
        written = Path(folder) / CLASSES.name
        java_options += f" -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        session = sessions.open_session("classes", "local[1]", {"spark.driver.defaultJavaOptions": java_options})
        assert session.sparkContext.parallelize([1, 2], 1).map(str).collect() == ["1", "2"]
        assert session.range(10).selectExpr("sum(id) as total").toPandas()["total"][0] == 45
        sessions.close_session(session, WRITE_TIMEOUT_S)
        if written.exists():
            written.rename(CLASSES)
        else:
            print("this Java keeps no classes; the tests take longer", file=sys.stderr)


if __name__ == "__main__":
    from tests.testkit.clusters.compactors import QUICK_START

    write(QUICK_START)
