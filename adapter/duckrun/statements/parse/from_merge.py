"""MERGE, read from tokens: sqlglot parses only a part of what DuckDB and Spark write."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.statements.parse.from_dml import DEFAULT, after_with, assignments
from duckrun.statements.parse.parts import from_items, target_of, unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, parted_at
from duckrun.statements.values import Merge, When


def is_merge(source: StatementText) -> bool:
    """Return True for a MERGE, with or without WITH before it."""
    if source.head[0] != "WITH":
        return source.head[0] == "MERGE"
    return any(parted_at(source, "MERGE", word)[1] is not None for word in ("INTO", "WITH"))


def merge(source: StatementText) -> Merge:
    """Read a MERGE.

    Its form is ``[WITH …] MERGE [WITH SCHEMA EVOLUTION] INTO t USING s ON … | USING (columns) WHEN
    …``.
    """
    with_, reader = after_with(source, "MERGE")
    reader.expect("MERGE")
    evolve = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    reader.accept("INTO")
    table = from_items(reader.until("USING"))
    target, alias = target_of(table, "MERGE"), table.alias_or_name
    reader.expect("USING")
    rows = from_items(reader.until("ON", "USING", "WHEN"))
    using = reader.names_in_brackets() if reader.accept("USING") else ()
    on = reader.until("WHEN").parse() if reader.accept("ON") else None
    whens = [_when(reader, alias)]
    while reader.left and not reader.accept("RETURNING"):
        whens.append(_when(reader, alias))
    if "RETURNING" in source.words[reader.at - 1 : reader.at] and reader.left:
        raise unsupported("MERGE … RETURNING")
    return Merge(target, alias, rows, on, using, tuple(whens), with_, evolve)


def _when(reader: TokenReader, alias: str) -> When:
    reader.expect("WHEN")
    kind = "not_matched" if reader.accept("NOT") else "matched"
    reader.expect("MATCHED")
    if kind == "not_matched" and reader.accept("BY", "SOURCE"):
        kind = "not_matched_by_source"
    elif kind == "not_matched":
        reader.accept("BY", "TARGET")
    condition = reader.until("THEN").parse() if reader.accept("AND") else None
    reader.expect("THEN")
    return replace(_action(reader.until("WHEN", "RETURNING"), kind, alias), condition=condition)


def _action(text: StatementText, kind: str, alias: str) -> When:
    words = text.words
    clause = f"MERGE … WHEN {kind.upper().replace('_', ' ')} THEN {text.written}"
    reader = TokenReader(text)
    if words == ("DO", "NOTHING"):
        return When(f"{kind}_nothing")  # type: ignore[arg-type]
    if reader.accept("ERROR"):
        return When(f"{kind}_error", message=reader.until().parse() if reader.left else None)  # type: ignore[arg-type]
    if words == ("DELETE",) and kind != "not_matched":
        return When(f"{kind}_delete")  # type: ignore[arg-type]
    if reader.accept("UPDATE") and kind != "not_matched":
        if reader.accept("SET") and words[2:] != ("*",):
            assigned = assignments(reader.until(), alias, defaults=True)
            return When(f"{kind}_update", assigned=assigned)  # type: ignore[arg-type]
        if kind == "not_matched_by_source":
            raise InvalidConfig(f"{clause}: there is no source row to take the columns from; name them with SET.")
        return _of_source("matched_update", reader, clause)
    if reader.accept("INSERT") and kind == "not_matched":
        if "VALUES" in words and words[1:2] != ("DEFAULT",):
            return _values(reader)
        return _of_source("not_matched_insert", reader, clause)
    raise unsupported(clause)


def _of_source(kind: str, reader: TokenReader, clause: str) -> When:
    """Read a clause that uses all source columns.

    By name for ``*`` and BY NAME, else by position.
    """
    by = "position"
    if reader.accept("*"):
        by = "all"
    elif reader.accept("BY", "NAME"):
        by = "name"
    else:
        reader.accept("BY", "POSITION")
    if by != "all":
        reader.accept("*")
    if reader.left:
        raise unsupported(clause)
    return When(kind, by=by)  # type: ignore[arg-type]


def _values(reader: TokenReader) -> When:
    names: tuple[str, ...] | None = None
    if not reader.accept("VALUES"):
        names = reader.names_in_brackets()
        reader.expect("VALUES")
    parts = [part.source for part in reader.parts()]
    reader.end()
    values = tuple(exp.var(DEFAULT) if part.words == (DEFAULT,) else part.parse() for part in parts)
    if names is None:
        return When("not_matched_insert", positional=values)
    if len(names) != len(values):
        raise InvalidConfig(f"MERGE … INSERT names {len(names)} columns and gives {len(values)} values.")
    return When("not_matched_insert", assigned=tuple(zip(names, values, strict=True)))
