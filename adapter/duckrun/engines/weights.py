"""Query over data files that counts each row with its multiplicity, the same on every engine.

The files are those of any versions of a table, and the columns are those of one version. No single
version needs to contain all files, so an engine reads the files directly, by the physical names of
their columns. Partition values come from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from duckrun.engines.dialect import Dialect
from duckrun.libraries import np, pa
from duckrun.sql.quoting import fresh_name, quote_literal
from duckrun.values.changes import FEED_WEIGHTS, Step, Weighed, WeighedRead
from duckrun.values.frozen import frozen
from duckrun.values.rows import ScanFile

CHANGE_TYPE = "_change_type"
"""Column of change data files. Source: Delta protocol, Add CDC File (Change Data Files)."""


@frozen
class Part:
    """Files of a read that count in the same way."""

    files: Sequence[ScanFile]
    listed: pa.Table
    """Each file and step with its multiplicity, row ids and partition values."""
    rows: pa.Table | None = None
    """Single rows with a multiplicity of their own."""
    join: str = "JOIN"
    """Join of the files with ``rows``."""
    weight: str = "f.weight"
    """Multiplicity of a row."""
    is_feed: bool = False
    """True for change data files."""


class WeighedQuery:
    """The query of one WeighedRead.

    Args:
        read: The rows to read.
        dialect: SQL of the engine.
        place: Returns the location of a file, as the engine reports it for a row.
        types: SQL types of the columns, by name.
    """

    def __init__(
        self, read: WeighedRead, dialect: Dialect, place: Callable[[ScanFile], str], types: Mapping[str, str]
    ) -> None:
        self.read, self._quote, self._place, self._types = read, dialect.quote, place, types
        self._twins = dialect.twins(read)
        taken = [*read.schema.names, *read.stored.names]
        self.file = fresh_name("__duckrun_file", taken)
        """Column of a source with the location of a row's file."""
        self.row = fresh_name("__duckrun_row", taken)
        """Column of a source with the number of a row in its file."""
        self._partitions = {i: field for i, field in enumerate(read.schema) if field.name in read.partition_columns}

    def parts(self) -> Iterator[Part]:
        """Yield the files to read, in groups that count in the same way."""
        files = [(step, file) for step in self.read.steps for file in step.files]
        whole = [(step, file) for step, file in files if file.base]
        if whole:
            rows = self._rows(whole)
            weight = "f.weight" if rows is None else "f.weight + coalesce(p.weight, 0)"
            yield Part([file.file for _, file in whole], self._listed_rows(whole), rows, "LEFT JOIN", weight)
        single = [(step, file) for step, file in files if not file.base]
        if (rows := self._rows(single)) is not None:
            yield Part([file.file for _, file in single], self._listed_rows(single), rows, "JOIN", "p.weight")
        feed = [(step, file) for step in self.read.steps for file in step.feed]
        if feed:
            kinds = " ".join(f"WHEN {quote_literal(kind)} THEN {weight}" for kind, weight in FEED_WEIGHTS.items())
            listed = self._listed([(step, file, 0, None) for step, file in feed])
            weight = f"CASE r.{self._quote(CHANGE_TYPE)} {kinds} END"
            yield Part([file for _, file in feed], listed, weight=weight, is_feed=True)

    def select(
        self,
        part: Part,
        source: str,
        listed: str,
        rows: str | None,
        values: Callable[[pa.Field, pa.Field], str],
        present: Collection[str],
    ) -> str:
        """Return the SELECT of a part.

        Args:
            part: The files.
            source: FROM item of their rows, with the columns ``file`` and ``row``.
            listed: FROM item of the part's ``listed``.
            rows: FROM item of the part's ``rows``.
            values: Returns SQL over ``r`` of a column, from its field in the table and the files.
            present: Columns of the files.
        """
        read, q = self.read, self._quote
        columns = {
            field.name: self._cast(f"f.p{i}", field) if i in self._partitions else values(field, stored)
            for i, (field, stored) in enumerate(zip(read.schema, read.stored, strict=True))
        }
        if read.fed is not None:
            columns[read.fed] = f"r.{q(CHANGE_TYPE)}" if part.is_feed else "CAST(NULL AS STRING)"
        if read.row_id is not None:
            number = f"f.first_row_id + r.{q(self.row)}"
            columns[read.row_id] = self._stored_or(read.stored_row_id, number, present)
        if read.row_commit is not None:
            columns[read.row_commit] = self._stored_or(read.stored_row_commit, "f.row_commit", present)
        columns |= {read.weight: f"CAST({part.weight} AS BIGINT)", read.step: "f.step"}
        joined = f"{source} AS r JOIN {listed} AS f ON f.place = r.{q(self.file)}"
        if rows is not None:
            joined += (
                f" {part.join} {rows} AS p ON p.place = f.place AND p.step = f.step AND p.number = r.{q(self.row)}"
            )
        return self._with_twins(columns, f"FROM {joined} WHERE {part.weight} <> 0")

    def nothing(self) -> str:
        """Return a SELECT of no rows, with all columns."""
        read = self.read
        columns = {field.name: self._cast("NULL", field) for field in read.schema}
        columns |= {} if read.fed is None else {read.fed: "CAST(NULL AS STRING)"}
        numbers = (read.row_id, read.row_commit, read.weight, read.step)
        columns |= {name: "CAST(NULL AS BIGINT)" for name in numbers if name is not None}
        return self._with_twins(columns, "WHERE false")

    def _with_twins(self, columns: Mapping[str, str], tail: str) -> str:
        select = f"SELECT {', '.join(f'{value} AS {self._quote(name)}' for name, value in columns.items())} {tail}"
        return f"SELECT {', '.join(['*', *self._twins])} FROM ({select}) AS named" if self._twins else select

    def _cast(self, value: str, field: pa.Field) -> str:
        return f"CAST({value} AS {self._types[field.name]})"

    def _stored_or(self, name: str | None, value: str, present: Collection[str]) -> str:
        return value if name is None or name not in present else f"coalesce(r.{self._quote(name)}, {value})"

    def _listed_rows(self, files: Iterable[tuple[Step, Weighed]]) -> pa.Table:
        return self._listed([(step, file.file, file.base, file) for step, file in files])

    def _listed(self, files: Sequence[tuple[Step, ScanFile, int, Weighed | None]]) -> pa.Table:
        stored = self.read.stored.names
        columns = {
            "place": pa.array([self._place(file) for _, file, _, _ in files], pa.string()),
            "step": pa.array([step.number for step, *_ in files], pa.int64()),
            "weight": pa.array([base for _, _, base, _ in files], pa.int64()),
            "first_row_id": pa.array([weighed and weighed.first_row_id for *_, weighed in files], pa.int64()),
            "row_commit": pa.array([weighed and weighed.row_commit for *_, weighed in files], pa.int64()),
        }
        for i, field in self._partitions.items():
            texts = [_partition_text(file.partition_values.get(stored[i]), field.type) for _, file, _, _ in files]
            columns[f"p{i}"] = pa.array(texts, pa.binary() if pa.types.is_binary(field.type) else pa.string())
        return pa.table(columns)

    def _rows(self, files: Iterable[tuple[Step, Weighed]]) -> pa.Table | None:
        chosen = [(step, file) for step, file in files if len(file.rows)]
        if not chosen:
            return None
        each = pa.array(np.repeat(np.arange(len(chosen)), [len(file.rows) for _, file in chosen]))
        return pa.table(
            {
                "place": pa.array([self._place(file.file) for _, file in chosen]).take(each),
                "step": pa.array([step.number for step, _ in chosen], pa.int64()).take(each),
                "number": pa.chunked_array([pa.array(file.rows) for _, file in chosen]).cast(pa.int64()),
                "weight": pa.chunked_array([pa.array(file.weights) for _, file in chosen]),
            }
        )


def _partition_text(value: str | None, kind: pa.DataType) -> Any:
    """Return a partition value of the log in a form that each engine casts to its type."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return value.encode("latin-1")
    if pa.types.is_timestamp(kind) and kind.tz and "+" not in value and not value.endswith("Z"):
        return value + "+00:00"
    return value
