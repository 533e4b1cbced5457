"""Changes applied to a table by key: one merge, and the SQL of its source.

The queries are DuckDB's SQL over two names, one for the changes and one for the table. An engine of
another dialect translates them.

With ``scd`` 2 the intervals of a key depend on the changes alone, not on their order or batches. A
change of a row begins an interval, which ends at the next change or deletion. If rows arrive late,
a deletion may end nothing yet. It then leaves an empty interval, which records it for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from duckrun.changes.rule import COMMIT_TIMESTAMP, COMMIT_VERSION, PAIR
from duckrun.errors import InvalidConfig, SchemaMismatch, repeated_keys
from duckrun.libraries import pa
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import fresh_name, quote_identifier
from duckrun.sql.raising import raising
from duckrun.values.applying import VALID_FROM, VALID_TO, ApplySpec
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.frozen import frozen
from duckrun.values.rows import MergeClause, MergeSpec, WriteSpec

ADDED = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP, PAIR)
"""Columns that change queries and feeds add to those of the table."""


@frozen
class Check:
    """Query that finds changes which cannot be applied, and the words of its error."""

    query: str
    columns: Sequence[str]
    what: str
    """Problem of the rows that the query returns."""

    def refuse(self, table: object, rows: Sequence[Sequence[object]]) -> None:
        """Raise SchemaMismatch for rows of the query, with their number and the first three."""
        if rows:
            shown = repeated_keys(self.columns, rows)
            raise SchemaMismatch(f"Changes of table {table}: {rows[0][-1]} of them {self.what}: {shown}")


class Applying:
    """SQL and merge that apply changes to a table.

    Args:
        table: The table's name, for messages.
        columns: Columns of the changes.
        target: Schema of the table; None if it is new.

    Raises:
        InvalidConfig: A key, a column or the sequence is missing in the changes.
        SchemaMismatch: A column has the name of an interval column, or the table lacks the columns
            that order its rows.
    """

    def __init__(self, table: object, spec: ApplySpec, columns: Sequence[str], target: pa.Schema | None = None) -> None:
        self._table, self._spec, self._target = table, spec, target
        self._given = list(columns)
        self._keys = [self._named(key, "keys") for key in spec.keys]
        self._sequence = None if spec.sequence_by is None else self._named(spec.sequence_by, "sequence_by")
        self._stored = self._to_store()
        self._within = None if spec.within is None else sql_names.transpile(spec.within, spec.dialect, "duckdb")
        names = [*columns, *(() if target is None else target.names), VALID_FROM, VALID_TO]
        fresh = (
            fresh_name(f"__duckrun_{name}", names)
            for name in ("at", "deletes", "rank", "was", "end", "next", "before", "n", "act")
        )
        self._at, self._deletes, self._rank, self._was, self._end, self._next, self._before, self._n, self._act = fresh
        if spec.scd == 2:
            self._refuse_interval_names()
        self._refuse_other_table()

    def _named(self, name: str, what: str) -> str:
        column = next((known for known in self._given if known.lower() == name.lower()), None)
        if column is None:
            raise InvalidConfig(
                f"Changes of table {self._table}: {what} names {name}, which they do not have; they have "
                f"{', '.join(self._given)}."
            )
        return column

    def _to_store(self) -> list[str]:
        spec = self._spec
        if spec.columns is not None:
            wanted = {self._named(name, "columns") for name in (*spec.keys, *spec.columns)}
        else:
            wanted = {name for name in self._given if name.lower() not in ADDED}
        if spec.scd == 1 and self._sequence is not None:
            wanted.add(self._sequence)
        return [name for name in self._given if name in wanted]

    def _refuse_interval_names(self) -> None:
        twins = [name for name in self._stored if name.lower() in (VALID_FROM, VALID_TO)]
        if twins:
            raise SchemaMismatch(
                f"Changes of table {self._table}: their column {twins[0]} has the name of one that a history (scd 2) "
                "adds. Rename it, or leave it out by columns."
            )

    def _refuse_other_table(self) -> None:
        """Raise SchemaMismatch if the table does not record the sequence of its rows."""
        sequence = [] if self._sequence is None else [self._sequence]
        needed = sequence if self._spec.scd == 1 else [VALID_FROM, VALID_TO]
        lacking = [name for name in needed if self._target is not None and self._in_target(name) is None]
        if lacking:
            raise SchemaMismatch(
                f"Table {self._table} has no column {lacking[0]}, by which scd {self._spec.scd} knows which of its "
                "rows are older than a change. Apply the changes to a new table, or give it the column."
            )

    def _in_target(self, name: str) -> str | None:
        known = [] if self._target is None else self._target.names
        return next((other for other in known if other.lower() == name.lower()), None)

    @property
    def stored(self) -> tuple[str, ...]:
        """Columns that the table gets, including those of intervals."""
        return tuple(self._stored) if self._spec.scd == 1 else (*self._stored, VALID_FROM, VALID_TO)

    # -- the changes

    def _changes(self, rows: str) -> str:
        """Select the relevant changes: stored columns, position in the sequence, deletion flag."""
        deletes, where = self._which_delete(rows)
        at = f"0 AS {self._at}" if self._sequence is None else f"given.{quote_identifier(self._sequence)} AS {self._at}"
        chosen = ", ".join(f"given.{quote_identifier(name)}" for name in self._stored)
        return f"SELECT {chosen}, {at}, {deletes} AS {self._deletes} FROM {rows} AS given{where}"

    def _which_delete(self, rows: str) -> tuple[str, str]:
        """Return SQL of the deletion flag, and a WHERE that drops irrelevant changes."""
        kind = next((column for column in self._given if column.lower() == CHANGE_TYPE), None)
        conditions = []
        deletes = "false"
        if isinstance(self._spec.deletes, str):
            deletes = f"coalesce(({sql_names.transpile(self._spec.deletes, self._spec.dialect, 'duckdb')}), false)"
        if kind is not None:
            word = f"given.{quote_identifier(kind)}"
            if self._spec.deletes is True:
                # An update may change the key. Its old image then deletes the old key.
                deletes = f"coalesce({word} IN ('delete', 'update_preimage'), false)"
                conditions.append(
                    f"({word} IS DISTINCT FROM 'update_preimage' OR NOT EXISTS ({self._image_of(rows, kind)}))"
                )
            else:
                dropped = "'update_preimage'" if isinstance(self._spec.deletes, str) else "'update_preimage', 'delete'"
                conditions.append(f"coalesce({word} NOT IN ({dropped}), true)")
        return deletes, f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _image_of(self, rows: str, kind: str) -> str:
        """Select the new image of a row with the same key, from the same commit if known."""
        version = next((column for column in self._given if column.lower() == COMMIT_VERSION), None)
        same = [*self._keys, *([] if version is None else [version])]
        equal = " AND ".join(f"image.{quote_identifier(name)} = given.{quote_identifier(name)}" for name in same)
        return f"SELECT 1 FROM {rows} AS image WHERE image.{quote_identifier(kind)} = 'update_postimage' AND {equal}"

    def checks(self, rows: str) -> tuple[Check, ...]:
        """Return the checks to run before the write.

        Args:
            rows: Name of the changes, as SQL.
        """
        changes = self._changes(rows)
        keys = ", ".join(map(quote_identifier, self._keys))
        shown = [*self._keys, self._sequence or "point"]
        nulls = " OR ".join(f"{name} IS NULL" for name in (*map(quote_identifier, self._keys), self._at))
        point = f"{keys}, {self._at}"
        without = f"SELECT {point}, count(*) AS {self._n} FROM ({changes}) AS changes WHERE {nulls} GROUP BY {point}"
        values = [name for name in self._stored if name not in self._keys]
        states = ", ".join(
            [point, *(f"CAST({quote_identifier(name)} AS VARCHAR) AS {quote_identifier(name)}" for name in values)]
        )
        states = f"SELECT DISTINCT {states} FROM ({changes}) AS changes WHERE NOT {self._deletes}"
        several = (
            f"SELECT {point}, count(*) AS {self._n} FROM ({states}) AS states GROUP BY {point} HAVING count(*) > 1"
        )
        every = f"SELECT *, sum({self._n}) OVER () FROM ({{}}) AS found ORDER BY {point} LIMIT 3"
        of = ", ".join(self._keys)
        or_sequence = "" if self._sequence is None else f" or in the sequence ({self._sequence})"
        several_of = "of another that differs, and no sequence_by says which is the last"
        if self._sequence is not None:
            several_of = (
                f"and the point of the sequence ({self._sequence}) of another that differs, so that the last cannot "
                "be told"
            )
        return (
            Check(every.format(without), shown, f"have a NULL in the key ({of}){or_sequence}"),
            Check(
                every.format(several), shown,
                f"have the key ({of}) {several_of}",
            ),
        )  # fmt: skip

    # -- the merge

    def merge(self) -> MergeSpec:
        """Return the merge whose source is ``source()``."""
        spec = self._spec
        keys, act = tuple(self._keys), f"source.{quote_identifier(self._act)}"
        stored = self.stored
        if spec.scd == 1:
            newer = "true"
            if self._sequence is not None:
                at = quote_identifier(self._in_target(self._sequence) or self._sequence)
                newer = f"(target.{at} IS NULL OR source.{quote_identifier(self._sequence)} >= target.{at})"
            clauses: tuple[MergeClause, ...] = (
                MergeClause("matched_delete", condition=f"{act} = 'delete' AND {newer}"),
                MergeClause("matched_update", condition=f"{act} = 'row' AND {newer}", columns=stored),
                MergeClause("not_matched_insert", condition=f"{act} = 'row'", columns=stored),
            )
        else:
            end = {VALID_TO: f"source.{quote_identifier(VALID_TO)}"}
            clauses = (
                MergeClause("matched_delete", condition=f"{act} = 'gone'"),
                MergeClause("matched_update", condition=f"{act} = 'end'", set=end),
                MergeClause("matched_update", condition=f"{act} = 'row'", columns=stored),
                MergeClause("not_matched_insert", condition=f"{act} = 'row'", columns=stored),
            )
            keys = (*keys, VALID_FROM)
        return MergeSpec(
            keys, clauses, within=self._within, schema_mode=spec.schema_mode, app=spec.app,
            read_version=spec.read_version, existing=spec.existing, commit_metadata=spec.commit_metadata,
            merge_mode=spec.merge_mode, writer=spec.writer, only_if_changed=True, **spec.layout,
        )  # fmt: skip

    def overwrite(self) -> WriteSpec:
        """Return the write of ``states()`` that replaces the table, or its part ``within``."""
        spec = self._spec
        return WriteSpec(
            "overwrite" if spec.within is None else "replace", predicate=self._within, app=spec.app,
            read_version=spec.read_version, existing=spec.existing, commit_metadata=spec.commit_metadata,
            writer=spec.writer, **spec.layout,
        )  # fmt: skip

    def source(self, rows: str, table: str | None = None) -> str:
        """Return the query of the merge's source.

        Args:
            rows: Name of the changes, as SQL.
            table: Name of the table, as SQL; None if it is new.
        """
        names = ", ".join(map(quote_identifier, self._stored))
        within = f"PARTITION BY {', '.join(map(quote_identifier, self._keys))}"
        changes = self._changes(rows)
        if self._spec.scd == 1:
            last = f"row_number() OVER ({within} ORDER BY {self._at} DESC, {self._deletes}) AS {self._n}"
            act = f"CASE WHEN {self._deletes} THEN 'delete' ELSE 'row' END AS {self._act}"
            return (
                f"SELECT {names}, {act} FROM (SELECT *, {last} FROM ({changes}) AS changes) AS numbered WHERE "
                f"{self._n} = 1"
            )
        once = f"row_number() OVER ({within}, {self._at} ORDER BY {self._deletes}) AS {self._n}"
        new = f"SELECT * FROM (SELECT *, {once} FROM ({changes}) AS changes) AS numbered WHERE {self._n} = 1"
        return self._intervals(self._events(new, table), within)

    def states(self, rows: str) -> str:
        """Return the query of a new table's rows."""
        names = ", ".join(map(quote_identifier, self.stored))
        return f"SELECT {names} FROM ({self.source(rows)}) AS applied WHERE {self._act} = 'row'"

    def _events(self, new: str, table: str | None) -> str:
        """Select the events of the keys: changes, and starts and ends of the table's intervals.

        The lowest rank wins among events at one position: a change before the table, and the start
        of an interval before the end of another.
        """
        names = ", ".join(map(quote_identifier, self._stored))
        events = (
            f"SELECT {names}, {self._at}, {self._deletes}, 0 AS {self._rank}, 0 AS {self._was}, CASE WHEN false THEN "
            f"{self._at} END AS {self._end} FROM given"
        )
        if table is None:
            return f"WITH given AS ({new}), events AS ({events})"
        key_columns = [quote_identifier(self._in_target(key) or key) for key in self._keys]
        start, end = (quote_identifier(str(self._in_target(name))) for name in (VALID_FROM, VALID_TO))
        met = " AND ".join(
            f"given.{quote_identifier(key)} = there.{name}" for key, name in zip(self._keys, key_columns, strict=True)
        )
        read = ", ".join(f"there.{name}" for name in (*key_columns, start, end))
        here = f"SELECT {read} FROM {table} AS there WHERE EXISTS (SELECT 1 FROM given WHERE {met})"
        columns = dict(zip(self._keys, key_columns, strict=True))
        values = ", ".join(f"{columns.get(name, 'NULL')} AS {quote_identifier(name)}" for name in self._stored)
        begun = f"SELECT {values}, {start}, coalesce({start} = {end}, false), 1, 1, {end} FROM here"
        ended = f"SELECT {values}, {end}, true, 2, 0, NULL FROM here WHERE {start} < {end}"
        return f"WITH given AS ({new}), here AS ({here}), events AS ({events} UNION ALL {begun} UNION ALL {ended})"

    def _intervals(self, events: str, within: str) -> str:
        """Select the table's new intervals, and the action for each present one."""
        at, deletes, was, end = self._at, self._deletes, self._was, self._end
        of_point = f"OVER ({within}, {at}"
        placed = (
            f"SELECT *, row_number() {of_point} ORDER BY {self._rank}) AS {self._n}, max({was}) {of_point}) AS "
            f"{self._was}_any, max({end}) {of_point}) AS {self._end}_any FROM events"
        )
        columns = ", ".join(f"{name}" for name in (*map(quote_identifier, self._stored), at, deletes, self._rank))
        ordered = (
            f"SELECT {columns}, {was}_any AS {was}, {end}_any AS {end}, lead({at}) OVER ({within} ORDER BY {at}) AS "
            f"{self._next}, coalesce(lag({deletes}) OVER ({within} ORDER BY {at}), true) AS {self._before} FROM "
            f"placed WHERE {self._n} = 1"
        )
        until = f"CASE WHEN {deletes} THEN {at} ELSE {self._next} END"
        act = (
            f"CASE WHEN {deletes} AND {self._rank} = 0 AND {was} = 1 AND {end} IS DISTINCT FROM {at} THEN "
            f"{self._erased()} WHEN {deletes} AND NOT {self._before} THEN CASE WHEN {was} = 1 THEN 'gone' END WHEN "
            f"{self._rank} = 0 AND NOT {deletes} THEN 'row' WHEN {was} = 0 THEN 'row' WHEN {end} IS DISTINCT FROM "
            f"{until} THEN 'end' END AS {self._act}"
        )
        values = ", ".join(
            quote_identifier(name)
            if name in self._keys
            else f"CASE WHEN NOT {deletes} THEN {quote_identifier(name)} END AS {quote_identifier(name)}"
            for name in self._stored
        )
        names = ", ".join(map(quote_identifier, (*self._stored, VALID_FROM, VALID_TO)))
        states = f"SELECT {values}, {at} AS {VALID_FROM}, {until} AS {VALID_TO}, {act} FROM ordered"
        return (
            f"{events}, placed AS ({placed}), ordered AS ({ordered}), found AS ({states}) "
            f"SELECT {names}, {self._act} FROM found WHERE {self._act} IS NOT NULL"
        )

    def _erased(self) -> str:
        """Return SQL that raises for a deletion at the same position as its row."""
        # Both at one position would leave no interval, and the history would lose the row.
        key = " || ', ' || ".join(f"CAST({quote_identifier(name)} AS VARCHAR)" for name in self._keys)
        message = (
            f"'the change that deletes key ' || {key} || ' has the same "
            f"{str(self._sequence).replace(chr(39), chr(39) * 2)}, ' || CAST({self._at} AS VARCHAR) || ', as the row "
            "that it deletes, so that a history would lose the row. Order the changes by when they were made: "
            "full_delta by _commit_timestamp or _commit_version'"
        )
        return raising(InvalidConfig, message)


def unfit_identity(keys: Sequence[str], identity: str, query_key: Sequence[str]) -> str | None:
    """Return why changes that use another row identity cannot be applied by these keys.

    None if the identity is the same key.
    """
    if identity == "key" and {name.lower() for name in query_key} == {name.lower() for name in keys}:
        return None
    by = ", ".join(query_key) if identity == "key" else {"row_id": "the ids of rows", "none": "nothing"}[identity]
    return f"they tell rows apart by {by}: ask for them by key={list(keys)!r}"
