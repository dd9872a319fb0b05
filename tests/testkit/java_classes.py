"""An archive of Spark's loaded classes for Java, which saves a third of the work of every start of Spark.

`python -m tests.testkit.java_classes` makes the archive of the current environment. Java ignores an archive that is
missing, or was made by another Java or for other jars.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CLASSES = Path(sys.prefix) / "classes.jsa"
WRITE_TIMEOUT_S = 900.0  # other work may run at the same time


def options() -> str:
    """The options with which a Java uses the archive, without messages about it."""
    return f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""


def write(java_options: str) -> None:
    """Start Spark and use it a little; its Java writes the archive when it ends."""
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
            print("this Java writes no class archive, so the tests take longer", file=sys.stderr)


if __name__ == "__main__":
    from penstock.spark.session import LOCAL_JAVA_OPTIONS

    write(LOCAL_JAVA_OPTIONS)
