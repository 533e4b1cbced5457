"""What each reader has of the table of a model: the rows, their ids, the numbers that it gave, and its change feed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from duckrun import Session
from duckrun.sql.names import quote_identifier
from tests.engines.turn_model import FEED, NEW, START, STEP, TABLE, TRACKED, Column, Modelled, Row, State, quoted


class Compared(Modelled):
    """A table that every reader is held against."""

    def _settle(self, before: dict[int, Row], *, compare_ids: bool, since: int | None = None) -> None:
        """Compare what each reader has with the model, and learn the numbers that the table gave."""
        version = self.version
        tracked = self._is("true", TRACKED)
        own = self._by(self.sessions["duckdb"], "duckdb")
        ours = self.light and not (tracked and self._has("x"))  # ids are not read beside a variant
        plain, ids = (own, self._ids_of_our_own()) if ours else self._plain(tracked)
        self._learn(plain)
        wanted = _multiset(self.now.rows.values())
        _same(plain, wanted, "duckdb" if ours else "Spark without our code")
        _same(own, wanted, "duckdb")
        if not self.light and (not self.few_reads or self.rng.random() < 0.3):
            _same(self._by(self.sessions["spark"], "spark"), wanted, "spark")
        if tracked:
            self._compare_ids(ids, compare_ids, since)
        else:
            self.now.row_ids = {}
        if self.fed and not self.light and since is not None and version > since and self._is("true", FEED):
            self._compare_feed(before, since + 1, version)
        if self.rng.random() < 0.9:
            self.history[version] = State(
                deepcopy(self.now.columns), deepcopy(self.now.rows), dict(self.now.tokens), dict(self.now.row_ids)
            )

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

    def finish(self) -> None:
        """Read the table once more, as Spark does."""
        wanted, tracked = _multiset(self.now.rows.values()), self._is("true", TRACKED)
        plain, ids = self._plain(tracked)
        _same(plain, wanted, "Spark without our code")
        assert not tracked or ids == self.now.row_ids, f"ids are {ids} for Spark, {self.now.row_ids} for DuckDB"
        _same(self._by(self.sessions["spark"], "spark"), wanted, "spark")

    def _ids_of_our_own(self) -> dict[int, tuple[int, int]]:
        if not self._is("true", TRACKED):
            return {}
        found = self.sessions["duckdb"].table(TABLE).toDF(row_ids=True).toArrow()
        names = ("id", "_row_id", "_row_commit_version")
        return {key: (row, at) for key, row, at in zip(*(found[name].to_pylist() for name in names), strict=True)}

    def _plain(self, tracked: bool) -> tuple[list[Row], dict[int, tuple[int, int]]]:
        """The rows, and the id and the version of each."""
        frame = self.spark.read.format("delta").load(str(self.location))
        names = {c.name for c in self.now.columns}
        found = [f.name for f in frame.schema]
        assert set(found) == names, f"Spark reads the columns {found}, not {sorted(names)}"
        of_rows = ("_metadata.row_id", "_metadata.row_commit_version") if tracked else ("0", "0")
        read = [tuple(row) for row in frame.selectExpr(*map(self._read, self.now.columns), *of_rows).collect()]
        rows = [self._row_of(values[:-2]) for values in read]
        return rows, {row["id"]: values[-2:] for row, values in zip(rows, read, strict=True)}

    def _read(self, column: Column) -> str:
        return f"CAST({quoted(column.name)} AS BIGINT)" if column.type == "VARIANT" else quoted(column.name)

    def _row_of(self, values: Sequence[Any]) -> Row:
        return {
            c.role: tuple(v.values() if isinstance(v, dict) else v) if c.role == "s" and v is not None else v
            for c, v in zip(self.now.columns, values, strict=True)
        }

    def _by(self, session: Session, engine: str) -> list[Row]:
        if engine == "spark":
            texts = [self._read(c) for c in self.now.columns]
        else:
            texts = [
                f"CAST({quote_identifier(c.name)} AS BIGINT)" if c.type == "VARIANT" else quote_identifier(c.name)
                for c in self.now.columns
            ]
        chosen = ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts))
        return [
            self._row_of(tuple(row.values()))
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
        columns = [*map(self._read, self.now.columns), "_change_type"]
        net: Counter[str] = Counter()
        kinds: dict[str, Counter[str]] = {}
        for *values, kind in map(tuple, frame.selectExpr(*columns).collect()):
            row = self._row_of(values)
            net[_text(row)] += 1 if kind in ("insert", "update_postimage") else -1
            kinds.setdefault(kind, Counter())[str(row["id"])] += 1
        wanted = Counter(map(_text, self.now.rows.values()))
        wanted.subtract(map(_text, before.values()))
        net, wanted = (Counter({k: n for k, n in each.items() if n}) for each in (net, wanted))
        assert net == wanted, f"the feed of {first} to {last} says {net}, the rows differ by {wanted}"
        if self.exact is not None:
            assert kinds == self.exact, f"the feed of {first} to {last} has {kinds}, not {self.exact}"


def _text(row: Row) -> str:
    return repr(sorted(row.items()))


def _multiset(rows: Iterable[Row]) -> list[str]:
    return sorted(map(_text, rows))


def _same(rows: list[Row], wanted: list[str], who: str) -> None:
    found = _multiset(rows)
    if found != wanted:
        more, less = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
        raise AssertionError(f"{who} reads {list(more)} and not {list(less)}")
