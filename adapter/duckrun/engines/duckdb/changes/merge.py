"""Merge on DuckDB.

One join finds the rows that match the source, and each gets the clause that applies. One commit
then deletes the old rows and adds the new ones. If the spec asks for it, delta_rs merges by key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from duckrun.engines.decisions import repeated_source_keys
from duckrun.engines.duckdb.instance.steady import unsteady_part
from duckrun.engines.duckdb.rows import row_ids
from duckrun.engines.duckdb.rows.clauses import assigned_by, choice, expression, of_source, translated, values_of
from duckrun.engines.duckdb.rows.computed import Computed
from duckrun.engines.duckdb.rows.fitted import cast_to_table, finished, refuse_outside, types_of
from duckrun.engines.duckdb.rows.marks import marked, rows_by_file
from duckrun.engines.duckdb.rows.places import Numbered, computed, counted, names_of, numbered
from duckrun.engines.duckdb.rows.pruning import files_met, key_ranges
from duckrun.engines.duckdb.rows.reads import EVERYTHING, Read, equal, joined
from duckrun.engines.duckdb.rows.source import Rows, select
from duckrun.engines.duckdb.rows.target import target_of
from duckrun.engines.duckdb.rows.weights import DUCKDB
from duckrun.engines.duckdb.writers import by_delta_rs
from duckrun.engines.duckdb.writers.table_writer import RowChanges, TableWriter
from duckrun.engines.fit import columns_in_expressions
from duckrun.errors import InvalidConfig
from duckrun.formats.format import Format, logs_of
from duckrun.sql.char_types import is_padded, padded
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import fresh_name, quote_identifier, quoted_list, quoted_names, select_list
from duckrun.values.choices import SchemaMode
from duckrun.values.frozen import frozen
from duckrun.values.rows import Commit, MergeClause, MergeSpec
from duckrun.values.snapshot import Snapshot, TableRef

_OF_UPSERTS = ("matched_update", "not_matched_insert", "not_matched_by_source_delete")


def refuse_duplicate_keys(ref: TableRef, rows: Rows, keys: Sequence[str]) -> None:
    """Raise DuplicateSourceKeys with the number of repeated keys and three of them.

    NULL keys never match, so they may repeat.
    """
    names = quoted_list(keys)
    present = " AND ".join(f"{quote_identifier(k)} IS NOT NULL" for k in keys)
    doubled = f"SELECT {names}, count(*) AS n FROM ({rows.sql}) WHERE {present} GROUP BY {names} HAVING count(*) > 1"
    if rows.cursor.execute(f"{doubled} LIMIT 1").fetchone() is None:
        return
    # The count of all groups takes twice as long.
    examples = rows.cursor.execute(f"SELECT *, count(*) OVER () FROM ({doubled}) ORDER BY ALL LIMIT 3").fetchall()
    raise repeated_source_keys(ref, examples[0][-1], keys, examples)


def merge(writer: TableWriter, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Merge rows into a table.

    The rows are read once.

    Raises:
        DuplicateSourceKeys: A key repeats in the source.
        InvalidConfig: A condition is volatile, or a clause names an unknown column.
        RowsOutsidePartition: A row lies outside ``within``.
        SchemaMismatch: The columns do not fit the table.
    """
    cursor, ref, form = rows.cursor, snapshot.ref, writer.transaction.lake.format
    clauses = [translated(clause, spec.dialect) for clause in spec.clauses]
    _refuse_unsteady(spec, clauses, ref, cursor)
    snapshot = target_of(snapshot, rows, spec.schema_mode, form, spec.takes)
    compared = {key: expression(text, spec.dialect) for key, text in spec.compared.items()}
    table_columns = snapshot.computed()
    clauses = [of_source(clause, rows, snapshot, table_columns) for clause in clauses]
    # The table's constraints apply to the rows that are written, not to the source's.
    more_types = dict[str, Any]()
    if compared:
        nulls = select_list({n: f"CAST(NULL AS {kind})" for n, kind in types_of(snapshot).items()})
        relation = cursor.sql(f"SELECT {', '.join(compared.values())} FROM (SELECT {nulls}) AS target")
        more_types |= zip(compared, relation.types, strict=True)
    # JSON columns that the table lacks. Cast to VARCHAR they would become VARIANT strings, and NULL
    # the string 'null'.
    there = {name.lower() for name in snapshot.schema.names}
    more_types |= {n: kind for n, kind in rows.types.items() if str(kind) == "JSON" and n.lower() not in there}
    mode = _merge_schema_mode(spec)
    chars = {f.name: f for f in snapshot.schema if f.name in spec.keys and is_padded(f)}
    rows, copies = _with_own_values(spec, rows, {**types_of(snapshot), **more_types}, chars)
    fitted = cast_to_table(form, spec, rows, snapshot, mode, more_types)
    number = fresh_name("__duckrun_number", names_of(snapshot) | set(rows.types))
    apart = {name: fresh_name(f"__duckrun_cast_{name}", {number, *copies.values(), *fitted.types}) for name in copies}
    quoted = quoted_names([*fitted.types, *apart.values(), *copies.values()])
    padding = {n: padded(quoted[n], field) for n, field in chars.items() if n in fitted.types}
    values = {apart.get(n, n): padding.get(n) or quoted[n] for n in fitted.types}
    values |= {name: quoted[copy] for name, copy in copies.items()}
    # DuckDB numbers the rows of a table itself. A query that numbers them runs on one core.
    has_row_ids = "rowid" not in {name.lower() for name in values}
    if not has_row_ids:
        values[number] = "row_number() OVER ()"
    with computed(cursor, f"SELECT {select_list(values)} FROM ({fitted.sql})") as source_table:
        names = select_list({n: quoted[apart.get(n, n)] for n in fitted.types})
        source = Rows(cursor, f"SELECT {names} FROM {source_table}", fitted.types)
        refuse_duplicate_keys(ref, source, spec.keys)
        if spec.within is not None:
            refuse_outside(ref, source, expression(spec.within, spec.dialect), spec.within)
        quoted_number = quote_identifier(number)
        numbers = _Given(source, source_table, "rowid" if has_row_ids else quoted_number, quoted_number, apart)
        delta_rs = writer.delta_rs
        if delta_rs is None or not delta_rs.writes(lambda: by_delta_rs.why_not_merge(logs_of(form), spec, snapshot)):
            return _decided(writer, spec, clauses, snapshot, numbers, ())
        if by_delta_rs.takes_source(spec, clauses, snapshot, source):
            return delta_rs.merge(snapshot, finished(form, source, snapshot, mode), spec.keys, clauses)
        matched_by = by_delta_rs.matched_by(spec, snapshot)
        return _decided(writer, spec, clauses, snapshot, numbers, matched_by)


@frozen
class _Given:
    """The source of a merge as a table whose rows have numbers.

    An expression of the merge sees the source's values before the cast to the table's types.
    """

    rows: Rows
    """Rows of the source in the table's types."""
    table: str
    """Quoted name of the table."""
    row: str
    """Column of this table with the row's number."""
    number: str
    """Quoted name of the column of other tables that has the number of a source row."""
    cast: Mapping[str, str]
    """Column -> the column with its values in the table's type, if the source has another type."""


def _with_own_values(
    spec: MergeSpec, rows: Rows, target: Mapping[str, Any], chars: Collection[str]
) -> tuple[Rows, dict[str, str]]:
    """Add copies of the uncast source columns that expressions name: column -> name of the copy.

    A copy is needed where the table has another type, or pads the column as CHAR.
    """
    kinds = {name.lower(): (name, str(kind)) for name, kind in target.items()}
    copy_names, copies = dict[str, str](), list[str]()
    for name in sorted(columns_in_expressions(spec, rows.types)):
        column, kind = kinds.get(name.lower(), (name, str(rows.types[name])))
        if kind != str(rows.types[name]) or column in chars:
            copy_names[column] = fresh_name(f"__duckrun_own_{column}", {*rows.types, *target, *copy_names.values()})
            copies.append(f"{quote_identifier(name)} AS {quote_identifier(copy_names[column])}")
    if not copy_names:
        return rows, copy_names
    carried = tuple(quote_identifier(name) for name in copy_names.values())
    return replace(rows, sql=f"SELECT *, {', '.join(copies)} FROM ({rows.sql})", carried=carried), copy_names


def _refuse_unsteady(
    spec: MergeSpec, clauses: Sequence[MergeClause], ref: TableRef, cursor: duckdb.DuckDBPyConnection
) -> None:
    """Raise InvalidConfig for a volatile condition, because a merge evaluates it per clause."""
    joins = [
        sql_names.transpile(on, spec.dialect, "duckdb") for on in (spec.on, *spec.compared.values()) if on is not None
    ]
    for condition in (*joins, *(clause.condition for clause in clauses)):
        part = None if condition is None else unsteady_part(condition, cursor)
        if part is not None:
            raise InvalidConfig(
                f"The merge into table {ref} has a condition with {part}, whose answer may change each time it is "
                "asked",
                remedy="let the source have it as a column, which is computed once",
            )


def _merge_schema_mode(spec: MergeSpec) -> SchemaMode:
    """Schema mode of the source. If every clause names its columns, the source may lack others."""
    if spec.schema_mode != "fail":
        return spec.schema_mode
    named = all(c.columns is not None or c.set is not None or c.kind.endswith("delete") for c in spec.clauses)
    return "append_new_columns" if named else "fail"


def inserted_alone(spec: MergeSpec, rows: Rows) -> Rows:
    """Return the rows that a merge into an empty table inserts."""
    clauses = [translated(c, spec.dialect) for c in spec.clauses if c.kind == "not_matched_insert"]
    if not clauses:
        return replace(rows, sql=f"SELECT * FROM ({rows.sql}) LIMIT 0")
    columns = [name for name in rows.types if spec.takes(name)]
    chosen = [(i, c.condition or "true", values_of(c, columns)) for i, c in enumerate(clauses)]
    names = dict.fromkeys([*columns, *(column for _, _, values in chosen for column in values)])
    action = quote_identifier(fresh_name("__duckrun_action", rows.types))
    number, outputs = choice(action, chosen, {name: rows.types.get(name) for name in names})
    inner = f"SELECT *, {number} FROM ({rows.sql}) AS source"
    inserted = select(rows.cursor, f"SELECT {outputs} FROM ({inner}) AS source WHERE {action} IS NOT NULL")
    # DuckDB shows untyped NULL as INTEGER. A value that a clause computes has a type.
    computed_names = {name.lower() for clause in clauses for name in clause.set or ()}
    untyped = {n: kind for n, kind in rows.types.items() if '"NULL"' in str(kind) and n.lower() not in computed_names}
    return replace(inserted, types={n: untyped.get(n, kind) for n, kind in inserted.types.items()})


def _decided(
    writer: TableWriter,
    spec: MergeSpec,
    clauses: Sequence[MergeClause],
    snapshot: Snapshot,
    source_table: _Given,
    matched_by: Sequence[str],
) -> Commit:
    """Join once, choose a clause for each row, and commit the result.

    delta_rs makes the commit if it can identify rows of the table by the columns ``matched_by``.
    """
    source, cursor, form = source_table.rows, source_table.rows.cursor, writer.transaction.lake.format
    on = equal(
        spec.keys, {key: expression(text, spec.dialect) for key, text in spec.compared.items()}, source_table.cast
    )
    on += "" if spec.on is None else f" AND ({expression(spec.on, spec.dialect)})"
    within = None if spec.within is None else expression(spec.within, spec.dialect)
    alone = any(c.kind.startswith("not_matched_by_source") for c in clauses)
    with numbered(snapshot, cursor) as table:
        choices = _Choices(
            form,
            clauses,
            table,
            source_table,
            matched_by,
            only_if_changed=spec.only_if_changed,
            is_whole=bool(matched_by) or writer.updates_from_changes,
        )
        keys = [key for key in spec.keys if key not in spec.compared]
        limits, met = [] if within is None else [f"({within})"], None
        if not alone:
            limits += key_ranges(source, keys)
            met = files_met(form, snapshot, source, keys)
        where = f" WHERE {' AND '.join(limits)}" if limits else ""
        here = f"(SELECT * FROM ({table.of_files(met)}){where}) AS target"
        with table.found(choices.matched(f"{here} JOIN {source_table.table} AS source ON {on}")) as changes:
            choices.add_not_matched(changes)
            choices.add_by_source(here, changes)
            by_key = choices.by_key(changes)
            ambiguous = by_delta_rs.why_not_changes(by_key, list(choices.kinds), cursor) if matched_by else None
            if ambiguous and list(matched_by) != (wider := by_delta_rs.all_compared(matched_by, snapshot)):
                return _decided(writer, spec, clauses, snapshot, source_table, wider)
            delta_rs = writer.delta_rs if matched_by else None
            chosen = delta_rs is not None and delta_rs.writes(lambda: ambiguous)
            cursor.execute(f"DELETE FROM {changes} WHERE {choices.action} IS NULL")
            if chosen and delta_rs is not None:
                rows = _live(spec, choices, changes, within, (table.row, *by_key.before.values()))
                live = finished(form, rows, snapshot, has_computed=True)
                return delta_rs.merge_changes(snapshot, live, by_key, choices.counts(changes))
            new = writer.rewrite(_row_changes(form, spec, choices, changes, within))

    def read() -> Read:
        computes = [c.condition or "true" for c in clauses] + [v for c in clauses for v in (c.set or {}).values()]
        by = {key: source_table.cast.get(key, key) for key in keys}
        return (
            EVERYTHING
            if alone
            else joined(cursor, f"SELECT * FROM {source_table.table}", on, within, computes=computes, keys=by)
        )

    return writer.commit(snapshot, new, read)


def _live(spec: MergeSpec, choices: _Choices, changes: str, within: str | None, carried: Sequence[str] = ()) -> Rows:
    """Rows of ``changes`` that the table has after the merge. Raises RowsOutsidePartition."""
    choices.number(changes)
    names = ", ".join([*choices.computed.anew(choices.kinds, choices.given_where()), *carried])
    chosen = f"SELECT {names} FROM {choices.whole(changes)} WHERE {choices.action} NOT IN ({choices.deleting})"
    rows = Rows(choices.table.cursor, chosen, choices.kinds, carried=tuple(carried))
    if within is not None and spec.within is not None:
        refuse_outside(choices.table.snapshot.ref, rows, within, spec.within)
    return rows


def _row_changes(form: Format, spec: MergeSpec, choices: _Choices, changes: str, within: str | None) -> RowChanges:
    table, action, deleting = choices.table, choices.action, choices.deleting
    carried, counts = row_ids.carried(form.logs, table), choices.counts(changes)
    rows = _live(spec, choices, changes, within, carried)
    source = None if carried else choices.whole_source(counts[0] + counts[1])
    old = f"CASE WHEN {action} IN ({deleting}) THEN 'delete' ELSE 'update_preimage' END"
    kinds = [
        (kind, f" AND {table.row} IS {test}")
        for kind, test, count in (("insert", "NULL", counts[0]), ("update_postimage", "NOT NULL", counts[1]))
        if count
    ]

    def written(sql: str) -> Rows:
        return finished(form, replace(rows, sql=sql), table.snapshot, has_computed=True)

    return RowChanges(
        table,
        changes,
        lambda: written(source or rows.sql) if kinds else None,
        "rows are merged by key",
        counts,
        old,
        lambda: [(kind, written(f"{rows.sql}{condition}")) for kind, condition in kinds],
        choices.numbers,
    )


class _Choices:
    """SELECTs of the rows that a merge changes.

    Each row has the file and number of the old row (NULL: a new row), the number of the source row,
    the number of the clause that applies (NULL: none), and the new values. Values that all clauses
    take from the source unchanged stay there (``taken``), so that wide rows are not stored twice.
    """

    def __init__(
        self,
        form: Format,
        clauses: Sequence[MergeClause],
        table: Numbered,
        source_table: _Given,
        matched_by: Sequence[str] = (),
        *,
        only_if_changed: bool = False,
        is_whole: bool = True,
    ) -> None:
        self.clauses, self.table, self.given = clauses, table, source_table
        self.numbered_in_files = form.logs is not None and table.in_file
        self.kinds = types_of(table.snapshot)
        taken = {*names_of(table.snapshot), *source_table.rows.types}
        self.action = quote_identifier(fresh_name("__duckrun_action", taken))
        self.deleting = ", ".join(str(i) for i, c in enumerate(clauses) if c.kind.endswith("delete")) or "-1"
        self._before = {name: quote_identifier(fresh_name(f"__duckrun_before_{name}", taken)) for name in matched_by}
        self._ref = table.snapshot.ref
        self.numbers: dict[str, int] = {}
        """Next number of each identity column after the inserted rows."""
        self.computed = Computed.of(form, self._ref, table.snapshot, self.kinds)
        self._old = {
            n: quote_identifier(fresh_name(f"__duckrun_old_{n}", taken)) for n in self.kinds if only_if_changed
        }
        """Column -> quoted name of its old value, if updates compare them."""
        self.taken = {} if is_whole else self._taken()
        """Column -> SQL of its values in the source, which all clauses take."""
        self._refuse_numbers()

    def _taken(self) -> dict[str, str]:
        sides = {"matched_update": quoted_names(self.kinds, "target"), "not_matched_insert": self.computed.defaults}
        values = [
            {**sides.get(clause.kind, {}), **assigned_by(clause, list(self.kinds), self._ref, self.given.cast)}
            for clause in self.clauses
            if not clause.kind.endswith("delete")
        ]
        in_source = set(quoted_names([*self.given.rows.types, *self.given.cast.values()], "source").values())
        if any(clause.kind == "not_matched_by_source_update" for clause in self.clauses) or not values:
            return {}
        return {
            name: value
            for name, value in values[0].items()
            if name not in self.computed.numbered
            and value in in_source
            and all(each.get(name) == value for each in values)
        }

    def whole(self, changes: str) -> str:
        """FROM item of the changes with all new values."""
        if not self.taken:
            return changes
        values, same = self._taken_values(), f"source.{self.given.row} = hit.{self.given.number}"
        # DuckDB knows no number of rows of tables that a running transaction made. It builds the
        # hash table of the right side then, and the rows of the changes are narrow.
        joined = f"{self.given.table} AS source JOIN {changes} AS hit ON {same}"
        return f"(SELECT hit.*, {values} FROM {joined})"

    def _taken_values(self) -> str:
        return select_list({n: f"CAST({value} AS {self.kinds[n]})" for n, value in self.taken.items()})

    def whole_source(self, count: int) -> str | None:
        """SELECT of the new rows from the source alone; None unless each source row is one of them.

        Args:
            count: Number of new rows.
        """
        is_upsert = all(clause.condition is None and clause.kind in _OF_UPSERTS for clause in self.clauses)
        if not is_upsert or self._old or self.computed.generated or self.taken.keys() != self.kinds.keys():
            return None
        # Each source row is updated or inserted once or more: at equal numbers, once.
        is_whole = {"matched_update", "not_matched_insert"} <= {clause.kind for clause in self.clauses}
        if not is_whole or counted(self.table.cursor, self.given.table) != count:
            return None
        return f"SELECT {self._taken_values()} FROM {self.given.table} AS source"

    def matched(self, joined: str) -> str:
        """SELECT of every row of the table that matches a source row."""
        return self._chosen("matched", f"source.{self.given.row}", joined)

    def add_not_matched(self, changes: str) -> None:
        """Add every source row that matches no row to ``changes``, which so far has the matches."""
        if not self._of("not_matched"):
            return
        row, number = f"source.{self.given.row}", self.given.number
        unmatched = f"{self.given.table} AS source ANTI JOIN {changes} AS met ON {row} = met.{number}"
        rows = f"SELECT {self._place(None)}, {row}, {self._choice('not_matched')} FROM {unmatched}"
        self.table.cursor.execute(f"INSERT INTO {changes} {rows}")

    def add_by_source(self, here: str, changes: str) -> None:
        """Add to ``changes`` every row of the table that matches no source row."""
        kind = "not_matched_by_source"
        if not self._of(kind):
            return
        insert = f"INSERT INTO {changes}"
        if not self.numbered_in_files:
            alone = f"{here} ANTI JOIN {changes} AS met ON {self.table.same('target', 'met')}"
            self.table.cursor.execute(f"{insert} {self._chosen(kind, 'NULL', alone)}")
            return
        with marked(self.table, rows_by_file(self.table, changes)) as matches:
            self.table.cursor.execute(f"{insert} {self._chosen(kind, 'NULL', matches.unmarked(here, 'target'))}")

    def _chosen(self, kind: str, number: str, joined: str) -> str:
        """SELECT of old rows with their clause: NULL for an update that changes nothing."""
        row = f"SELECT {self._place('target')}, {number} AS {self.given.number}"
        updates = {i: self._sets(i) for i in self._of(kind) if self.clauses[i].kind.endswith("update")}
        old = {name: self._old[name] for names in updates.values() for name in names if self._old}
        if not old:
            return f"{row}, {self._choice(kind)} FROM {joined}"
        equal = " OR ".join(f"{self.action} = {i} AND NOT ({self._differs(sets)})" for i, sets in updates.items())
        chosen = f"CASE WHEN {equal} THEN NULL ELSE {self.action} END AS {self.action}"
        before = ", ".join(f"target.{quote_identifier(name)} AS {column}" for name, column in old.items())
        hidden = ", ".join([*old.values(), *quoted_names([name for name in old if name in self.taken]).values()])
        rows = f"{row}, {self._choice(kind, old)}, {before} FROM {joined}"
        return f"SELECT * EXCLUDE ({hidden}) REPLACE ({chosen}) FROM ({rows})"

    def _sets(self, index: int) -> list[str]:
        """Columns that a clause sets."""
        return list(assigned_by(self.clauses[index], list(self.kinds), self._ref))

    def _differs(self, names: Sequence[str]) -> str:
        """Condition that a column has another value than before."""
        tests = []
        for name, new in quoted_names(names).items():
            field, is_variant = self.table.snapshot.schema.field(name), "VARIANT" in str(self.kinds[name])
            new = padded(new, field) or new  # old values are padded
            tests.append(DUCKDB.differs(self._old[name], new, field, is_variant=is_variant))
        return " OR ".join(tests)

    def given_where(self) -> dict[str, str]:
        """For each generated column, the condition under which a clause sets its value."""
        return {
            name: f"{self.action} IN ({', '.join(map(str, setting))})"
            for name in self.computed.generated
            if (setting := self._setting(name))
        }

    def by_key(self, changes: str) -> by_delta_rs.Changes:
        return by_delta_rs.Changes(changes, self.table.file, self.table.row, self.action, self.deleting, self._before)

    def counts(self, changes: str) -> tuple[int, int, int]:
        """Numbers of inserted, updated and deleted rows."""
        kinds = (
            f"{self.table.row} IS NULL",
            f"{self.table.row} IS NOT NULL AND {self.action} NOT IN ({self.deleting})",
            f"{self.action} IN ({self.deleting})",
        )
        figures = ", ".join(f"count(*) FILTER (WHERE {kind})" for kind in kinds)
        counts: tuple[int, int, int] = self.table.cursor.execute(f"SELECT {figures} FROM {changes}").fetchall()[0]
        return counts

    def number(self, changes: str) -> None:
        """Number the inserted rows for identity columns that their clauses do not set."""
        cursor, number = self.table.cursor, self.given.number
        is_new = f"{self.table.row} IS NULL"
        for name, by in self.computed.numbered.items():
            setting = ", ".join(map(str, self._setting(name))) or "-1"
            inserted = (
                f"SELECT {number} AS place, row_number() OVER () - 1 AS n FROM {changes} "
                f"WHERE {is_new} AND {self.action} NOT IN ({setting})"
            )
            value = f"{by.next} + {by.step} * given.n"
            # The changes may have a column rowid of the table. A new row has one row of the source.
            done = cursor.execute(
                f"UPDATE {changes} SET {quote_identifier(name)} = {value} FROM ({inserted}) AS given "
                f"WHERE {is_new} AND {changes}.{number} = given.place"
            ).fetchone()
            rows = 0 if done is None else done[0]
            if rows:
                self.numbers[name] = by.after(rows)

    def _setting(self, name: str) -> list[int]:
        """Indexes of the clauses that set a column."""
        return [i for i, clause in enumerate(self.clauses) if name in values_of(clause, list(self.kinds))]

    def _refuse_numbers(self) -> None:
        for name in self.computed.numbered:
            for i in self._setting(name):
                if self.clauses[i].kind.endswith("update"):
                    raise InvalidConfig(
                        f"The merge into table {self._ref} updates {name}, an identity column, whose numbers stay",
                        remedy="name the columns to update",
                    )
                self.computed.refuse_given(name)

    def _of(self, kind: str) -> list[int]:
        return [i for i, c in enumerate(self.clauses) if c.kind.rpartition("_")[0] == kind]

    def _place(self, alias: str | None) -> str:
        names = {name: name for name in (self.table.file, self.table.row)}
        names |= {name: quote_identifier(column) for column, name in self._before.items()}
        if alias is None:
            return ", ".join(f"NULL AS {name}" for name in names)
        values = {name: f"{alias}.{column}" for name, column in names.items()}
        values[self.table.file] = f"CAST({values[self.table.file]} AS {self.table.file_type})"
        return ", ".join(f"{value} AS {name}" for name, value in values.items())

    def _choice(self, kind: str, needed: Collection[str] = ()) -> str:
        """SQL of the clause that applies, and of the values that are not taken, or are needed."""
        kinds = {name: type_ for name, type_ in self.kinds.items() if name not in self.taken or name in needed}
        old = quoted_names(self.kinds, "target")
        if kind == "not_matched":
            old = dict(self.computed.defaults)
        chosen = []
        for i in self._of(kind):
            clause, values = self.clauses[i], {}
            if not clause.kind.endswith("delete"):
                values = old | assigned_by(clause, list(self.kinds), self._ref, self.given.cast)
            chosen.append((i, clause.condition or "true", values))
        if not chosen:  # no clause applies, but the matches must be known
            nothing = select_list({name: f"CAST(NULL AS {type_})" for name, type_ in kinds.items()})
            return ", ".join(filter(None, [f"CAST(NULL AS INTEGER) AS {self.action}", nothing]))
        return ", ".join(filter(None, choice(self.action, chosen, kinds)))
