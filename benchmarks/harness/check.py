"""Whether a side ended with the rows that the data call for: as multisets, by plain DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import duckdb

    from benchmarks.harness.case import Relations


class Fingerprint(NamedTuple):
    """Of the rows of a relation, in any order: how many, and the sum of their 64-bit hashes."""

    rows: int
    hashes: int


class Differs(Exception):
    """A side's rows are not those expected."""


class Checker:
    """Compares relations; the fingerprint of what is expected is computed once."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._known: dict[str, tuple[dict[str, str], Fingerprint]] = {}

    def check(self, found: Relations, expected: Relations) -> int:
        """The rows compared: of each relation found, of which there must be one. Raises Differs with what is missing and what is
        too many, if a column or a row differs.
        """
        if not found:
            raise Differs("it ended with nothing to compare")
        return sum(self._same(name, sql, expected[name]) for name, sql in found.items())

    def _same(self, name: str, found: str, expected: str) -> int:
        types, wanted = self._expect(expected)
        columns = self._types(found)
        if {each.lower() for each in columns} != {each.lower() for each in types}:
            raise Differs(f"{name}: columns {', '.join(columns)} instead of {', '.join(types)}")
        rows = _cast(found, types)
        if (own := self._fingerprint(rows, types)) != wanted:
            raise Differs(
                f"{name}: {own.rows:,} rows instead of {wanted.rows:,}; {self._difference(rows, expected, types)}"
            )
        return own.rows

    def _expect(self, sql: str) -> tuple[dict[str, str], Fingerprint]:
        if sql not in self._known:
            types = self._types(sql)
            self._known[sql] = types, self._fingerprint(_cast(sql, types), types)
        return self._known[sql]

    def _types(self, sql: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self._con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()}

    def _fingerprint(self, rows: str, types: dict[str, str]) -> Fingerprint:
        columns = ", ".join(map(_quote, types))
        found = self._con.execute(f"SELECT count(*), coalesce(sum(hash({columns})), 0) FROM {rows}").fetchone()
        assert found is not None
        return Fingerprint(int(found[0]), int(found[1]))

    def _difference(self, rows: str, expected: str, types: dict[str, str]) -> str:
        said = []
        wanted = _cast(expected, types)
        for what, one, other in (("missing", wanted, rows), ("too many", rows, wanted)):
            query = f"SELECT count(*) OVER (), * FROM (FROM {one} EXCEPT ALL FROM {other}) LIMIT 1"
            found = self._con.execute(query).fetchone()
            said.append(f"{found[0]:,} {what}, such as {found[1:]}" if found else f"none {what}")
        return "; ".join(said)


def _cast(sql: str, types: dict[str, str]) -> str:
    """The relation with columns of these types in this order: Spark has no unsigned numbers, for instance."""
    columns = ", ".join(f"CAST({_quote(name)} AS {kind}) AS {_quote(name)}" for name, kind in types.items())
    return f"(SELECT {columns} FROM {sql})"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
