"""What each reader has of the table of a model: the rows, their ids, the numbers that it gave, and its change feed; and a fresh Spark at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from duckrun import Session
from duckrun.sql.quoting import quote_identifier
from tests.engines.fresh_spark import IDS, Asked
from tests.engines.turn_model import FEED, NEW, START, STEP, TABLE, TRACKED, Column, Modelled, Row, State, quoted
from tests.engines.turn_types import as_model

PLAIN_VIEW = "read_plainly"
COMPARED = ("INT", "BIGINT", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(20, 2)", "DOUBLE", "BOOLEAN")
IN_DUCKDB = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ", "TIMESTAMP_NTZ": "TIMESTAMP"}


class Compared(Modelled):
    """A table that every reader is held against."""

    def _settle(self, before: dict[int, Row], *, compare_ids: bool, since: int | None = None) -> None:
        """Compare what each reader has with the model, and learn the numbers that the table gave."""
        version, tracked = self.version, self._is("true", TRACKED)
        plain, ids = self._plain(tracked)
        self._learn(plain)
        wanted = _multiset(self.now.rows.values())
        _same(plain, wanted, "Spark without our code")
        engines = ["duckdb", *(["spark"] if not self.few_reads or self.rng.random() < 0.3 else [])]
        for engine in engines:
            _same(self._by(self.sessions[engine], engine), wanted, engine)
            self._compare_filter(engine, partial(self._answers, engine))
        self._compare_filter("spark", lambda query: [tuple(row) for row in self.spark.sql(query).collect()], PLAIN_VIEW)
        self.now.tracked = tracked
        if tracked:
            self._compare_ids(ids, compare_ids, since)
            for engine in engines:
                found = self._ids_by(self.sessions[engine])
                assert found == ids, f"the ids are {ids}, and {engine} reads {found}"
        else:
            self.now.row_ids = {}
        if self.fed and since is not None and version > since and self._is("true", FEED):
            self._compare_feed(before, since + 1, version)
        if self.rng.random() < 0.9:
            self.history[version] = self.now.copy()

    def _learn(self, rows: list[Row]) -> None:
        for row in rows:
            held = self.now.rows.get(row["id"], {})
            if held.get("k") != NEW:
                continue
            number = row.get("k")
            assert number is not None and number not in self.numbers, f"the number {number} was given twice"
            assert number >= START and (number - START) % STEP == 0, f"{number} is no number of this column"
            self.numbers.add(number)
            held["k"] = number

    def _compare_filter(self, engine: str, ask: Callable[[str], list[tuple[Any, ...]]], table: str = TABLE) -> None:
        """A reader finds the rows of a filter that it finds without leaving files out: a comparison is made of every row, and asked for."""
        column = self.rng.choice([c for c in self.now.columns if c.type in COMPARED])
        name = (quoted if engine == "spark" else quote_identifier)(column.name)
        kind = IN_DUCKDB.get(column.type, column.type) if engine == "duckdb" else column.type
        held = [
            text for (text,) in ask(f"SELECT DISTINCT CAST({name} AS STRING) FROM {table} WHERE {name} IS NOT NULL")
        ]
        if held and self.rng.random() < 0.9:
            text = self.rng.choice(sorted(held)).replace("'", "''" if engine == "duckdb" else "\\'")
            condition = f"{name} {self.rng.choice(('=', '=', '<', '>='))} CAST('{text}' AS {kind})"
        else:
            condition = f"{name} IS NULL"
        rows = ask(f"SELECT id, {condition} FROM {table}")
        found = sorted(key for (key,) in ask(f"SELECT id FROM {table} WHERE {condition}"))
        wanted = sorted(key for key, holds in rows if holds)
        who = "Spark without our code" if table == PLAIN_VIEW else engine
        assert found == wanted, f"where {condition}, {who} finds the rows {found}, and there are {wanted}"

    def _answers(self, engine: str, query: str) -> list[tuple[Any, ...]]:
        found = self.sessions[engine].sql(query, dialect=engine).toArrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    # -- a process without our code, at the end

    def questions(self, most: int) -> list[Asked]:
        """What a fresh Spark is to read: the table, and as many of the versions that it still has."""
        versions = self.rng.sample(sorted(self.history), min(most, len(self.history)))
        self.asked: list[tuple[int | None, State]] = [(None, self.now), *((v, self.history[v]) for v in versions)]
        return [
            Asked(
                str(self.location), version, [_read(c) for c in state.columns], [c.name for c in state.columns], state.tracked
            )
            for version, state in self.asked
        ]  # fmt: skip

    def compare_fresh(self, answers: Sequence[list[tuple[Any, ...]]]) -> None:
        for (version, state), rows in zip(self.asked, answers, strict=True):
            who = f"a fresh Spark, of {'the table' if version is None else f'version {version}'},"
            count = len(state.columns)
            found = [_row_of(row[:count], state.columns) for row in rows]
            _same(found, _multiset(state.rows.values()), who)
            if state.tracked:
                ids = {row["id"]: all_of[count:] for row, all_of in zip(found, rows, strict=True)}
                assert ids == state.row_ids, f"{who} has the ids {ids}, not {state.row_ids}"

    # -- readers

    def _ids_by(self, session: Session) -> dict[int, tuple[int, int]]:
        session.table(TABLE).toDF(row_ids=True).createOrReplaceTempView("numbered")
        found = session.sql("SELECT id, _row_id, _row_commit_version FROM numbered").toArrow()
        return {key: (row, at) for key, row, at in zip(*(column.to_pylist() for column in found.columns), strict=True)}

    def _plain(self, tracked: bool) -> tuple[list[Row], dict[int, tuple[int, int]]]:
        """The rows, and the id and the version of each."""
        frame = self.spark.read.format("delta").load(str(self.location))
        frame.createOrReplaceTempView(PLAIN_VIEW)
        names = {c.name for c in self.now.columns}
        found = [f.name for f in frame.schema]
        assert set(found) == names, f"Spark reads the columns {found}, not {sorted(names)}"
        of_rows = IDS if tracked else ("0", "0")
        read = [tuple(row) for row in frame.selectExpr(*map(_read, self.now.columns), *of_rows).collect()]
        rows = [_row_of(values[:-2], self.now.columns) for values in read]
        return rows, {row["id"]: values[-2:] for row, values in zip(rows, read, strict=True)}

    def _by(self, session: Session, engine: str) -> list[Row]:
        read = _read if engine == "spark" else _read_by_duckdb
        chosen = ", ".join(f"{read(column)} AS c{at}" for at, column in enumerate(self.now.columns))
        return [
            _row_of(tuple(row.values()), self.now.columns)
            for row in session.sql(f"SELECT {chosen} FROM {TABLE}", dialect=engine).toArrow().to_pylist()
        ]

    def _compare_ids(self, ids: dict[int, tuple[int, int]], compare: bool, since: int | None) -> None:
        assert all(None not in held for held in ids.values()), f"rows without an id: {ids}"
        assert len({held[0] for held in ids.values()}) == len(ids), f"ids twice: {ids}"
        mark = self._mark()
        assert mark >= self.mark, f"the mark went back from {self.mark} to {mark}"
        assert all(held[0] <= mark for held in ids.values()), f"ids above the mark {mark}: {ids}"
        if compare and since is not None:
            for key, (row_id, changed) in ids.items():
                if key in self.now.row_ids and self.now.tokens[key] is self.tokens_of_ids.get(
                    key, self.now.tokens[key]
                ):
                    assert row_id == self.now.row_ids[key][0], (
                        f"row {key} had the id {self.now.row_ids[key]}, has {row_id}"
                    )
                    if key in self.touched:
                        assert changed > since, f"row {key} changed after {since}, and its version is {changed}"
                    elif self.same_versions:
                        assert changed == self.now.row_ids[key][1], f"row {key}: {self.now.row_ids[key]}, now {changed}"
                else:
                    assert row_id > self.mark, f"the new row {key} has the id {row_id}, and the mark was {self.mark}"
                    assert changed > since, f"the new row {key} has the version {changed}"
        self.now.row_ids, self.mark = ids, mark
        self.tokens_of_ids = dict(self.now.tokens)

    def _mark(self) -> int:
        found = -1
        for path in sorted((self.location / "_delta_log").glob("*.json")):
            for line in path.read_text(encoding="utf-8").splitlines() if path.stem.isdigit() else ():
                domain = json.loads(line).get("domainMetadata", {})
                if domain.get("domain") == "delta.rowTracking":
                    found = json.loads(domain["configuration"])["rowIdHighWaterMark"]
        return found

    def _compare_feed(self, before: dict[int, Row], first: int, last: int) -> None:
        frame = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .option("endingVersion", last)
            .load(str(self.location))
        )
        columns = [*map(_read, self.now.columns), "_change_type"]
        net: Counter[str] = Counter()
        kinds: dict[str, Counter[str]] = {}
        for *values, kind in map(tuple, frame.selectExpr(*columns).collect()):
            row = _row_of(values, self.now.columns)
            net[_text(row)] += 1 if kind in ("insert", "update_postimage") else -1
            kinds.setdefault(kind, Counter())[str(row["id"])] += 1
        wanted = Counter(map(_text, self.now.rows.values()))
        wanted.subtract(map(_text, before.values()))
        net, wanted = (Counter({k: n for k, n in each.items() if n}) for each in (net, wanted))
        assert net == wanted, f"the feed of {first} to {last} says {net}, the rows differ by {wanted}"
        if self.exact is not None:
            assert kinds == self.exact, f"the feed of {first} to {last} has {kinds}, not {self.exact}"


def _read(column: Column) -> str:
    """A column in Spark's SQL, as Python gets it whole: a time without this machine's time zone, a variant as a number."""
    kind = {"VARIANT": "BIGINT", "TIMESTAMP": "TIMESTAMP_NTZ"}.get(column.type)
    return f"CAST({quoted(column.name)} AS {kind})" if kind else quoted(column.name)


def _read_by_duckdb(column: Column) -> str:
    name = quote_identifier(column.name)
    return f"CAST({name} AS BIGINT)" if column.type == "VARIANT" else name


def _row_of(values: Sequence[Any], columns: Sequence[Column]) -> Row:
    return {
        c.role: tuple(v.values() if isinstance(v, dict) else v) if c.role == "s" and v is not None else as_model(v)
        for c, v in zip(columns, values, strict=True)
    }


def _text(row: Row) -> str:
    return repr(sorted(row.items()))


def _multiset(rows: Iterable[Row]) -> list[str]:
    return sorted(map(_text, rows))


def _same(rows: list[Row], wanted: list[str], who: str) -> None:
    found = _multiset(rows)
    if found != wanted:
        more, less = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
        raise AssertionError(f"{who} reads {list(more)} and not {list(less)}")
