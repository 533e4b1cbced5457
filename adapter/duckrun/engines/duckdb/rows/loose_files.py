"""Loose CSV and Parquet files as Spark reads them: which files of a path, their columns and types.

DuckDB guesses the dialect, the header and the types of a CSV file. Here nothing is left to it, so
that both engines return the same rows. What DuckDB's parser reads otherwise is an error.
"""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from duckrun.errors import InvalidConfig, SchemaMismatch, StorageError, UnsupportedFeature
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.frozen import frozen
from duckrun.values.partition_values import NO_VALUE

_PATTERN = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_UNREADABLE = (".bz2", ".lz4", ".snappy", ".deflate")
"""Endings of files that Spark decompresses and DuckDB does not."""
_ENCODINGS = {"iso-8859-1": "latin-1", "latin1": "latin-1", "utf8": "utf-8"}
"""Java's names of encodings and DuckDB's."""


@frozen
class LooseFiles:
    """Files of a path, and the types of the columns that are in the names of its folders."""

    paths: tuple[str, ...]
    partitions: Mapping[str, str]


def files_sql(cursor: duckdb.DuckDBPyConnection, format: str, path: str, options: Mapping[str, Any]) -> str:
    """Return a SELECT of the rows of Parquet or CSV files, by Spark's options.

    Raises:
        StorageError: There is no such file, or a folder has no files.
        SchemaMismatch: The folders of a partitioned path name different columns.
        UnsupportedFeature: DuckDB does not read such files.
    """
    files = loose_files(cursor, path)
    if unknown := [file for file in files.paths if file.lower().endswith(_UNREADABLE)]:
        raise UnsupportedFeature(f"DuckDB does not decompress {unknown[0]}", remedy="Run this with engine: spark")
    hive = f"hive_partitioning => {str(bool(files.partitions)).lower()}"
    if files.partitions:
        types = ", ".join(f"{quote_literal(name)}: {kind}" for name, kind in files.partitions.items())
        hive += f", hive_types => {{{types}}}"
    listed = f"[{', '.join(map(quote_literal, files.paths))}]"
    if format == "parquet":
        return f"SELECT * FROM read_parquet({listed}, {hive})"
    return _CsvFiles(cursor, files, options, hive, listed).sql()


def loose_files(cursor: duckdb.DuckDBPyConnection, path: str) -> LooseFiles:
    """Return the files of a file, a folder or a pattern, as Spark chooses them.

    A folder stands for the files in it, and for those in its folders ``column=value``. Names that
    begin with ``_`` or ``.`` are no data.
    """
    pairs = sorted((folders, file) for each in _alternatives(path) for folders, file in _leaves(cursor, each))
    names = [tuple(part.partition("=")[0] for part in folders if "=" in part) for folders, _ in pairs]
    if any(names):
        pairs = [pair for pair, of_file in zip(pairs, names, strict=True) if of_file]
        names = [of_file for of_file in names if of_file]
        if len(set(names)) > 1:
            raise SchemaMismatch(
                f"its folders name different columns: {', '.join(sorted({'/'.join(each) for each in names}))}"
            )
    else:
        pairs = [(folders, file) for folders, file in pairs if not folders]
    if not pairs:
        raise StorageError("there is no file", remedy="Check the path; names that begin with _ or . are no data")
    values = [dict(part.split("=", 1) for part in folders if "=" in part) for folders, _ in pairs]
    partitions = {
        unquote(name): _type_of([unquote(each[name]) for each in values if each[name] != NO_VALUE])
        for name in (names[0] if names else ())
    }
    return LooseFiles(tuple(file for _, file in pairs), partitions)


def _alternatives(path: str) -> Iterator[str]:
    """Yield the patterns without braces that a pattern stands for."""
    braces = None if os.path.exists(path) else _BRACES.search(path)
    if braces is None:
        yield path
        return
    for each in braces[1].split(","):
        yield from _alternatives(path[: braces.start()] + each + path[braces.end() :])


def _leaves(cursor: duckdb.DuckDBPyConnection, path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the files of a path, with the folders between its root and each file.

    A root is a file or folder that the path names or, as a pattern, matches.
    """
    if path.startswith(("http://", "https://")):  # cannot be listed
        yield (), path
    elif "://" in path:
        yield from _in_store(cursor, path)
    else:
        for root in [path] if os.path.exists(path) else sorted(glob.glob(path.replace("[^", "[!"))):
            yield from _on_disk(root)


def _on_disk(root: str) -> Iterator[tuple[tuple[str, ...], str]]:
    if not os.path.isdir(root):
        if not _is_hidden(os.path.basename(root)):
            yield (), root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        between = Path(folder).relative_to(root).parts
        yield from ((between, f"{folder}/{name}") for name in names if not _is_hidden(name))


def _in_store(cursor: duckdb.DuckDBPyConnection, path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    parts = path.rstrip("/").split("/")
    first = next((at for at, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    base, patterns = "/".join(parts[:first]), [part.replace("[^", "[!") for part in parts[first:]]
    # Without a pattern, DuckDB returns a path that it did not look up.
    files = _listed(cursor, f"{base}/**") or (_listed(cursor, f"{base[:-1]}[{base[-1]}]") if not patterns else [])
    for file in files:
        # DuckDB may name the store by another scheme.
        rest = file.partition("://")[2].removeprefix(base.partition("://")[2]).removeprefix("/")
        names = rest.split("/") if rest else []
        matched, below = names[: len(patterns)], tuple(names[len(patterns) :])
        if len(matched) == len(patterns) and all(map(fnmatchcase, matched, patterns)):
            name = below[-1] if below else file.rpartition("/")[2]
            if name and not any(map(_is_hidden, (*below, name))):
                yield below[:-1], file


def _listed(cursor: duckdb.DuckDBPyConnection, pattern: str) -> list[str]:
    return [file for (file,) in cursor.execute(f"SELECT file FROM glob({quote_literal(pattern)})").fetchall()]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def _type_of(values: Sequence[str]) -> str:
    """Return the type of a partition column, from its values in the names of folders."""
    if all(map(_INTEGER.fullmatch, values)):
        return "INTEGER" if all(-(2**31) <= int(value) < 2**31 for value in values) else "BIGINT"
    if all(map(_DOUBLE.fullmatch, values)):
        return "DOUBLE"
    return "DATE" if all(map(_DATE.fullmatch, values)) else "VARCHAR"


class _CsvFiles:
    """SELECT of CSV files, whose columns and types are known before DuckDB reads them."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        files: LooseFiles,
        options: Mapping[str, Any],
        hive: str,
        listed: str,
    ) -> None:
        self.cursor, self.files, self.options, self.hive, self.listed = cursor, files, options, hive, listed
        self.separator = str(options.get("sep", ",")).replace("\\t", "\t")
        self.quote = str(options.get("quote", '"'))
        self.escape = str(options.get("escape", "\\"))
        self.has_header = bool(options.get("header"))

    def sql(self) -> str:
        names = self.names()
        if not names:
            raise SchemaMismatch("its files have no line, so they have no columns")
        if twice := {name.lower() for name in names} & {name.lower() for name in self.files.partitions}:
            raise SchemaMismatch(f"its files and the names of its folders have the column {', '.join(sorted(twice))}")
        self.refuse_escapes()
        texts = self.texts(names)
        if not self.options.get("inferSchema"):
            return texts
        return inferred(self.cursor, texts, names, [*self.files.partitions])

    def names(self) -> list[str]:
        """Return the names of the columns, from the first line that is not blank."""
        line = next(filter(None, map(self.first_line, self.files.paths)), None)
        if line is None:
            return []
        doubles = self.escape == self.quote
        dialect: dict[str, Any] = {"delimiter": "\x1f", "doublequote": doubles, "quotechar": self.quote or None}
        dialect["escapechar"] = None if doubles or not self.quote else self.escape or None
        dialect["quoting"] = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        (values,) = csv.reader([line.replace(self.separator, "\x1f")], **dialect)
        values = [value.replace("\x1f", self.separator) for value in values]
        if not self.has_header:
            return [f"_c{i}" for i in range(len(values))]
        lower = [value.lower() for value in values]
        return [
            f"_c{i}" if not value else f"{value}{i}" if lower.count(value.lower()) > 1 else value
            for i, value in enumerate(values)
        ]

    def first_line(self, file: str) -> str | None:
        return self.line_with("trim(line) <> ''", quote_literal(file))

    def refuse_escapes(self) -> None:
        """Raise InvalidConfig for an escape before a character that needs none."""
        # DuckDB drops such an escape and Spark does not.
        if not self.quote or not self.escape or self.escape == self.quote:
            return
        quote, escape = quote_literal(self.quote), quote_literal(self.escape)
        rest = f"replace(replace(line, {escape} || {escape}, ''), {escape} || {quote}, '')"
        line = self.line_with(f"contains(line, {quote}) AND contains({rest}, {escape})", self.listed)
        if line is not None:
            raise InvalidConfig(
                f"the line {line[:80]!r} has quotes and a {self.escape!r} that escapes nothing",
                remedy=f"Set the option escape to {self.quote!r} if {self.escape!r} is no escape in these files",
            )

    def line_with(self, condition: str, files: str) -> str | None:
        """Return the first line that meets a condition in SQL; None if there is none."""
        line = self.cursor.execute(
            f"SELECT line FROM read_csv({files}, columns => {{'line': 'VARCHAR'}}, auto_detect => false, "
            f"header => false, delim => {quote_literal(chr(31))}, quote => '', escape => '', {self.shared()}) "
            f"WHERE {condition} LIMIT 1"
        ).fetchone()
        return None if line is None else str(line[0])

    def shared(self) -> str:
        encoding = str(self.options.get("encoding", "utf-8")).lower()
        encoding = quote_literal(_ENCODINGS.get(encoding, encoding))
        return f"comment => '', encoding => {encoding}"

    def texts(self, names: Sequence[str]) -> str:
        """Return a SELECT of all columns as texts."""
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
        # A line without separators leaves the other columns NULL. An empty value has to differ
        # from that, except in the only column, and with nullValue, where quotes decide.
        is_alone = len(names) == 1
        empty = "" if is_alone or "nullValue" in self.options else "\x01"
        read = (
            f"read_csv({self.listed}, columns => {{{columns}}}, auto_detect => false, "
            f"header => {str(self.has_header).lower()}, delim => {quote_literal(self.separator)}, "
            f"quote => {quote_literal(self.quote)}, escape => {quote_literal(self.escape if self.quote else '')}, "
            f"nullstr => {quote_literal(empty)}, allow_quoted_nulls => false, null_padding => true, parallel => false, "
            f"{self.shared()}, {self.hive})"
        )
        values = [self.value(f"c{i}", name) for i, name in enumerate(names)]
        partitions = map(quote_identifier, self.files.partitions)
        is_blank = "c0 IS NULL OR (c0 <> '' AND trim(c0) = '')" if is_alone else "trim(c0) = '' AND c1 IS NULL"
        return f"SELECT {', '.join([*values, *partitions])} FROM {read} WHERE ({is_blank}) IS NOT TRUE"

    def value(self, column: str, name: str) -> str:
        value = f"nullif({column}, {quote_literal(str(self.options.get('nullValue', '')))})"
        if not self.options.get("multiLine"):
            reason = f"column {name!r} has a line break in quotes, which needs the option multiLine"
            error = raising(InvalidConfig, quote_literal(reason))
            value = f"CASE WHEN regexp_matches({column}, '[\\r\\n]') THEN {error} ELSE {value} END"
        return f"{value} AS {quote_identifier(name)}"


_TIME = r"\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?"
_ZONE = r"(Z|[+-]\d{2}:\d{2})?"
_TIME_OF_DAY = "TIME"
_DECIMAL = "DECIMAL(38, 0)"
_KINDS = {
    "INTEGER": r"[+-]?\d+",
    "BIGINT": r"[+-]?\d+",
    _DECIMAL: r"[+-]?\d+",
    "DOUBLE": r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?\s*|NaN|[+-]?Inf(inity)?",
    "DATE": r"\d{4}-\d{2}-\d{2}",
    "TIMESTAMPTZ": rf"\d{{4}}(-\d{{1,2}}(-\d{{1,2}}([ T]({_TIME}{_ZONE})?)?)?)?",
    _TIME_OF_DAY: _TIME,
    "BOOLEAN": "(?i)true|false",
}
"""Types that Spark tries one after the other, and the form of their texts."""


def inferred(cursor: duckdb.DuckDBPyConnection, texts: str, names: Sequence[str], others: Sequence[str]) -> str:
    """Return a SELECT of columns with the types that all of their values have.

    Args:
        cursor: Connection that reads the values.
        texts: SELECT of the columns as texts.
        names: Columns to type.
        others: Further columns of the SELECT.

    Raises:
        UnsupportedFeature: A column has times of day, which Spark takes for times of today.
    """
    tests = []
    for column in map(quote_identifier, names):
        tests.append(f"max(length(regexp_replace({column}, '^[+-]?0*', '')))")
        tests += [
            f"bool_and(regexp_full_match({column}, {quote_literal(form)}) "
            f"AND try_cast({_plain(column, kind)} AS {kind}) IS NOT NULL) FILTER ({column} IS NOT NULL)"
            for kind, form in _KINDS.items()
        ]
    answers = iter(cursor.execute(f"SELECT {', '.join(tests)} FROM ({texts})").fetchone() or ())
    typed = []
    for name, column in zip(names, map(quote_identifier, names), strict=True):
        digits = next(answers)
        kinds = [kind for kind in _KINDS if next(answers)]
        kind = kinds[0] if kinds else "VARCHAR"
        if kind == _TIME_OF_DAY:
            raise UnsupportedFeature(
                f"column {name!r} has times of day, which Spark reads as times of today",
                remedy="Read it without inferSchema, and cast its texts",
            )
        kind = f"DECIMAL({digits}, 0)" if kind == _DECIMAL else kind
        typed.append(f"CAST({_plain(column, kind)} AS {kind}) AS {column}")
    return f"SELECT {', '.join([*typed, *map(quote_identifier, others)])} FROM ({texts})"


def _plain(column: str, kind: str) -> str:
    """Return a text of a type in the form that DuckDB casts."""
    if kind == "DOUBLE":  # Java's numbers may end with their type
        return f"regexp_replace({column}, '([0-9.])[dDfF](\\s*)$', '\\1')"
    if kind == "TIMESTAMPTZ":  # Spark cuts digits after the microseconds
        return f"regexp_replace({column}, '(\\.\\d{{6}})\\d+', '\\1')"
    return column
