"""SQL expressions that look up a per-file value for each row of a scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duckrun.errors import StorageError
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.sql.raising import text_of

_MOST = 1_000
"""Maximum number of files for a CASE expression; a scan of more files joins their values."""


def with_values(
    source: str,
    place: str,
    values: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str],
    lost: str,
    *,
    there: bool = False,
) -> str:
    """Return a SELECT of a source's columns and of columns with one value per file.

    Up to ``_MOST`` files are compared by a CASE. DuckDB evaluates it once per vector. With
    ``filename => true`` it even evaluates a filter on it before it opens the files. A join costs
    1.4 times the scan and opens all files.

    Args:
        source: SQL of the scan.
        place: quoted name of the column with the file of each row.
        values: SQL of one value per added column, by file.
        kinds: DuckDB types of the added columns, by quoted name.
        lost: start of the message of the StorageError that a row of another file raises.
        there: True if the source has columns of these names; the added ones replace them.
    """
    names = list(kinds)
    rest = f" EXCLUDE ({', '.join(names)})" if there else ""
    if 0 < len(values) <= _MOST:
        ordered = sorted(values.items(), key=lambda each: each[0].encode())
        # Not error(): DuckDB would evaluate it for every row. Casting a text to a number fails too.
        fails = f"CAST(CAST({_lost(lost, place)} AS BIGINT) AS VARCHAR)"
        computed = ", ".join(
            f"{_chosen(place, [(file, each[i]) for file, each in ordered], f'CAST({fails} AS {kind})')} AS {name}"
            for i, (name, kind) in enumerate(kinds.items())
        )
        return f"SELECT *{rest}, {computed} FROM {source}"
    key = quote_identifier(fresh_name("file", [name[1:-1] for name in names]))
    nothing = ["NULL", *(f"CAST(NULL AS {kind})" for kind in kinds.values())]
    listed = [[quote_literal(file), *each] for file, each in values.items()] or [nothing]
    rows = ", ".join(f"({', '.join(row)})" for row in listed)
    at = f"here.{place}"
    fails = f"error({_lost(lost, at)})"
    taken = ", ".join(f"CASE WHEN found.{key} IS NULL THEN {fails} ELSE found.{name} END AS {name}" for name in names)
    joined = f"(VALUES {rows}) AS found({', '.join([key, *names])})"
    return f"SELECT here.*{rest}, {taken} FROM {source} AS here LEFT JOIN {joined} ON {at} = found.{key}"


def _lost(text: str, place: str) -> str:
    return text_of(StorageError, f"{quote_literal(text)} || {place}")


def _chosen(place: str, values: Sequence[tuple[str, str]], fails: str) -> str:
    """Return a CASE that finds the value for a row's file by binary search over sorted files."""
    if len(values) == 1:
        file, value = values[0]
        return f"CASE WHEN {place} = {quote_literal(file)} THEN {value} ELSE {fails} END"
    middle = len(values) // 2
    low, high = (_chosen(place, half, fails) for half in (values[:middle], values[middle:]))
    return f"CASE WHEN {place} < {quote_literal(values[middle][0])} THEN {low} ELSE {high} END"
