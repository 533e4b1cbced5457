"""Values that hold for all rows of a file, as SQL over the rows of many files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duckrun.errors import StorageError
from duckrun.sql.names import fresh_name, quote_identifier, quote_literal
from duckrun.sql.raising import text_of

_MOST = 1_000
"""Files for each of which a value stands in an expression; the values of more are joined."""


def with_values(
    source: str,
    place: str,
    values: Mapping[str, Sequence[str]],
    kinds: Mapping[str, str],
    lost: str,
    *,
    there: bool = False,
) -> str:
    """SELECT of all columns of a source and of some more, of which ``kinds`` has the types by their names; ``there``: the source has
    columns of these names, which go. Names are quoted, as is ``place``, the column with the file of each row. ``values`` has SQL of one
    value for each, by the file; a row of any other file raises StorageError, of which ``lost`` is the text before that file.

    DuckDB computes an expression over the file of a row once for each of its vectors, and before it opens the files where a filter asks
    for it (of read_parquet(), with ``filename => true``): a join costs 1.4 times the scan and opens all.
    """
    names = list(kinds)
    rest = f" EXCLUDE ({', '.join(names)})" if there else ""
    if 0 < len(values) <= _MOST:
        ordered = sorted(values.items(), key=lambda each: each[0].encode())
        # No error(): it is computed for each row anew. A text that is no number fails as well.
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
    found = f"(VALUES {rows}) AS found({', '.join([key, *names])})"
    return f"SELECT here.*{rest}, {taken} FROM {source} AS here LEFT JOIN {found} ON {at} = found.{key}"


def _lost(text: str, place: str) -> str:
    return text_of(StorageError, f"{quote_literal(text)} || {place}")


def _chosen(place: str, values: Sequence[tuple[str, str]], fails: str) -> str:
    """The value for the file of a row, among sorted ones: by halves."""
    if len(values) == 1:
        file, value = values[0]
        return f"CASE WHEN {place} = {quote_literal(file)} THEN {value} ELSE {fails} END"
    middle = len(values) // 2
    low, high = (_chosen(place, half, fails) for half in (values[:middle], values[middle:]))
    return f"CASE WHEN {place} < {quote_literal(values[middle][0])} THEN {low} ELSE {high} END"
