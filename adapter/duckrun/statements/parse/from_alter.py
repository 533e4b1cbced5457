"""Forms of ALTER TABLE that sqlglot drops or cannot parse, read from tokens.

These are layouts, UNSET of properties, and fields of structs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from duckrun.errors import InvalidConfig
from duckrun.statements.parse.layout import partition_keys, sorted_columns
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader
from duckrun.statements.values import OnTable, Parts, Statement
from duckrun.values import tables


def alter(source: StatementText) -> Statement | None:
    """Return the statement; None for one that sqlglot can parse."""
    if source.head[:2] != ("ALTER", "TABLE"):
        return None
    reader = TokenReader(source)
    reader.expect("ALTER", "TABLE")
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.name()
    for words, read in _BY_WORDS.items():
        if reader.accept(*words):
            return _on_table(name, (read(reader),), if_exists, reader)
    changes = tuple(_fields(reader))
    return _on_table(name, changes, if_exists, reader) if changes else None


def _on_table(name: Parts, changes: tuple[tables.Change, ...], if_exists: bool, reader: TokenReader) -> Statement:
    reader.end()
    return OnTable(name, tables.AlterSpec(changes, dialect=reader.source.dialect), if_exists)


def _unset(reader: TokenReader) -> tables.Change:
    if_exists = reader.accept("IF", "EXISTS")
    return tables.UnsetProperties(reader.names_in_brackets(), if_exists)


def _cluster(reader: TokenReader) -> tables.Change:
    """Read CLUSTER BY (a, b) or CLUSTER BY NONE; sqlglot knows only the first."""
    return tables.ClusterBy(() if reader.accept("NONE") else reader.names_in_brackets())


def _sorted(reader: TokenReader) -> tables.Change:
    return tables.SetProperties({tables.SORT_BY: json.dumps(list(sorted_columns(reader)), ensure_ascii=False)})


_BY_WORDS: dict[tuple[str, ...], Callable[[TokenReader], tables.Change]] = {
    ("UNSET", "TBLPROPERTIES"): _unset,
    ("CLUSTER BY",): _cluster,
    ("SET", "PARTITIONED BY"): lambda reader: tables.PartitionBy(partition_keys(reader)),
    ("RESET", "PARTITIONED BY"): lambda reader: tables.PartitionBy(()),
    ("SET", "SORTED", "BY"): _sorted,
    ("RESET", "SORTED", "BY"): lambda reader: tables.UnsetProperties((tables.SORT_BY,), if_exists=True),
}


# -- fields of structs


def _fields(reader: TokenReader) -> Iterator[tables.Change]:
    """Yield changes of struct fields, named by a path such as ``address.zip``.

    Yield nothing for a name of one part.
    """
    verb = next((word for word in ("ADD", "DROP", "RENAME", "ALTER") if reader.accept(word)), None)
    if verb is None:
        return
    if not reader.accept("COLUMN"):
        reader.accept("COLUMNS")
    for clause in (("IF", "NOT", "EXISTS"), ("IF", "EXISTS")):
        if reader.accept(*clause) and _has_path(reader):
            raise unsupported(f"ALTER TABLE … {verb} {' '.join(clause)} of a field of a struct")
    if verb in ("ADD", "DROP") and reader.is_at_brackets:
        parts = reader.parts()
        if any(map(_has_path, parts)):
            for part in parts:
                yield _change(verb, part)
                part.end()
    elif _has_path(reader):
        yield _change(verb, reader)


def _has_path(reader: TokenReader) -> bool:
    """Return True if a name of several parts follows."""
    return len(reader.left) > 1 and reader.left[1].text == "."


def _change(verb: str, reader: TokenReader) -> tables.Change:
    *path, name = reader.name()
    change: tables.AddColumn | tables.DropColumn | tables.RenameColumn | tables.ChangeType
    if verb == "ADD":
        change = tables.AddColumn(tables.ColumnSpec(name, _type(reader)))
    elif verb == "DROP":
        change = tables.DropColumn(name)
        if reader.accept("CASCADE"):
            raise unsupported("ALTER TABLE … DROP … CASCADE")
    elif verb == "RENAME":
        reader.expect("TO")
        change = tables.RenameColumn(name, reader.identifier())
    else:
        named = ".".join((*path, name))
        reader.accept("SET", "DATA")
        if not reader.accept("TYPE"):
            words = " ".join(reader.source.words[reader.at : reader.at + 3])
            raise unsupported(f"ALTER COLUMN {named} {words} (a field of a struct has a type and nothing else); it")
        change = tables.ChangeType(name, _type(reader))
    if not path:
        if isinstance(change, tables.RenameColumn | tables.ChangeType):
            raise InvalidConfig(f"{name} is no field of a struct.")
        return change
    return tables.InStruct(tuple(path), change)


def _type(reader: TokenReader) -> str:
    kind = reader.until("DEFAULT", "COMMENT", "CHECK", "NOT", "USING", "FIRST", "AFTER", "COLLATE").written
    if reader.left:
        word = reader.source.words[reader.at]
        raise unsupported(f"a field of a struct with {word} (it has a type and nothing else); it")
    return kind
