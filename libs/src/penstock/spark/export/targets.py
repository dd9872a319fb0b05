"""The targets of exports: a folder of Parquet files, or an Iceberg table, each with the end offsets of its data.

Data and end offsets change in one step, also if a process dies. So the next export continues exactly at the end.
"""

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.contracts.errors import Conflict, Invalid
from penstock.spark.export.files import ExportedFile, sync

RUN_PREFIX = "export-"
MANIFEST = "_manifest.json"
WRITING = ".writing"


class Reached(msgspec.Struct, frozen=True):
    """The contents of a target: all records of a topic before these offsets, by partition."""

    cluster: str
    topic: str
    topic_id: str
    offsets: dict[str, int]
    rows: int = 0  # of the last export


class Target(Protocol):
    """The target of exports; one export at a time uses it."""

    def reached(self) -> Reached | None:
        """The present contents; None before the first export."""

    def folder(self) -> Path:
        """An empty folder for the files of the next export."""

    def commit(self, files: Sequence[ExportedFile], reached: Reached) -> None:
        """Add the files and record their end offsets, both in one step."""


def open_target(kind: str, folder: Path, topic: str, schema: Any) -> Target:
    """The target of a kind, parquet or iceberg, in a folder; `schema` is the Arrow schema of all files."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        return ParquetTarget(folder)
    if kind == "iceberg":
        return IcebergTarget(folder, topic, schema)
    raise Invalid(f"--format must be parquet or iceberg: {kind!r}")


class ParquetTarget:
    """One folder per export, from `export-00000001` on, with a manifest; it appears complete, by one rename."""

    def __init__(self, folder: Path) -> None:
        if (folder / IcebergTarget.CATALOG).exists():
            raise Invalid(f"{folder} has an Iceberg table; export to another folder, or with --format iceberg")
        self._folder = folder

    def reached(self) -> Reached | None:
        last = self._last()
        return None if last is None else _decoded((last / MANIFEST).read_text(encoding="utf-8"), last)

    def folder(self) -> Path:
        writing = self._folder / WRITING
        shutil.rmtree(writing, ignore_errors=True)  # left by a killed export; this export has the lock of the folder
        made = writing / "files"
        made.mkdir(parents=True)
        return made

    def commit(self, files: Sequence[ExportedFile], reached: Reached) -> None:
        last = self._last()
        number = 1 + (0 if last is None else int(last.name.removeprefix(RUN_PREFIX)))
        staged = self._folder / WRITING / f"{RUN_PREFIX}{number:08}"
        staged.mkdir()
        for file in files:
            path = Path(file.path)
            path.rename(staged / path.name)
        manifest = staged / MANIFEST
        manifest.write_bytes(msgspec.json.format(msgspec.json.encode(reached)))
        sync(manifest)
        sync(staged)
        final = self._folder / staged.name
        try:
            staged.rename(final)
        except OSError as error:
            raise Conflict(f"another export created {final} at the same time") from error
        sync(self._folder)
        shutil.rmtree(self._folder / WRITING, ignore_errors=True)

    def _last(self) -> Path | None:
        return max(self._folder.glob(f"{RUN_PREFIX}[0-9]*"), default=None)


class IcebergTarget:
    """An Iceberg table with its own catalog, a SQLite file in the same folder; one export is one snapshot."""

    CATALOG = "catalog.sqlite"
    NAMESPACE = "penstock"
    PROPERTY = "penstock.exported"

    def __init__(self, folder: Path, topic: str, schema: Any) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        if next(folder.glob(f"{RUN_PREFIX}[0-9]*"), None) is not None:
            raise Invalid(f"{folder} has Parquet files; export to another folder, or with --format parquet")
        self._folder = folder
        self._schema = schema
        self._catalog = SqlCatalog("penstock", uri=f"sqlite:///{folder / self.CATALOG}", warehouse=f"file://{folder}")
        self._catalog.create_namespace_if_not_exists(self.NAMESPACE)
        self._name = f"{self.NAMESPACE}.{table_name(topic)}"
        self._made: Path | None = None

    def reached(self) -> Reached | None:
        if not self._catalog.table_exists(self._name):
            return None
        table = self._catalog.load_table(self._name)
        stored = table.properties.get(self.PROPERTY)
        if stored is None and table.current_snapshot() is not None:
            raise Conflict(f"the table {self._name} has records, but no end offsets of an export")
        return None if stored is None else _decoded(stored, self._folder)

    def folder(self) -> Path:
        made = self._folder / self.NAMESPACE / self._name.partition(".")[2] / "data"
        made.mkdir(parents=True, exist_ok=True)
        for leftover in made.glob("*.unfinished"):  # left by a killed task
            with contextlib.suppress(OSError):
                leftover.unlink()
        return made

    def commit(self, files: Sequence[ExportedFile], reached: Reached) -> None:
        from pyiceberg.exceptions import CommitFailedException

        sync(self.folder())
        if not self._catalog.table_exists(self._name):
            location = f"file://{self._folder / self.NAMESPACE / self._name.partition('.')[2]}"
            self._catalog.create_table(self._name, self._schema, location=location)
        table = self._catalog.load_table(self._name)
        stored = msgspec.json.encode(reached).decode()
        try:
            with table.transaction() as transaction:
                transaction.add_files(
                    [f"file://{file.path}" for file in files], snapshot_properties={self.PROPERTY: stored}
                )
                transaction.set_properties({self.PROPERTY: stored})
        except CommitFailedException as error:
            raise Conflict(f"another export changed the table {self._name} at the same time") from error
        except (ValueError, KeyError) as error:
            raise Invalid(f"the table {self._name} has other columns than this export: {error}") from error


def table_name(topic: str) -> str:
    """The name of a topic's Iceberg table, without dots and dashes."""
    return topic.replace(".", "_").replace("-", "_")


def _decoded(text: str, where: Path) -> Reached:
    try:
        return msgspec.json.decode(text, type=Reached)
    except (msgspec.DecodeError, json.JSONDecodeError) as error:
        raise Invalid(f"the end offsets of the export in {where} cannot be read: {error}") from error
