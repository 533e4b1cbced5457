"""CREATE MACRO and DROP MACRO, read from tokens."""

from __future__ import annotations

from typing import Literal

from sqlglot import exp
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig
from duckrun.sql.quoting import quote_literal
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, parted
from duckrun.statements.values import CreateMacro, DropMacro, Statement


def is_macro(source: StatementText) -> bool:
    """Return True for CREATE MACRO: the macros that it calls are resolved when it is called."""
    return source.head[:1] == ("CREATE",) and bool({"MACRO", "FUNCTION"} & {*source.head[1:4]})


def create(reader: TokenReader, *, replace: bool = False) -> Statement:
    """Read the tokens behind CREATE [OR REPLACE] MACRO."""
    if reader.source.dialect != "duckdb":
        raise unsupported("CREATE MACRO in Spark's dialect (a macro is DuckDB's SQL); it")
    if_exists: Literal["error", "ignore", "replace"] = "replace" if replace else "error"
    if reader.accept("IF", "NOT", "EXISTS"):
        if replace:
            raise InvalidConfig("CREATE OR REPLACE MACRO IF NOT EXISTS: say one of the two.")
        if_exists = "ignore"
    name = reader.name()
    parameters = tuple(_parameter(part) for part in reader.parts() if part.left)
    names = [parameter.lower() for parameter, _ in parameters]
    if doubled := [each for each in names if names.count(each) > 1]:
        raise InvalidConfig(f"The macro {'.'.join(name)} has two parameters {doubled[0]!r}.")
    reader.expect("AS")
    is_table = reader.accept("TABLE")
    body = reader.until()
    if not is_table and len(parted(body, ",")) > 1:
        raise unsupported("CREATE MACRO of several forms (give each a name of its own); it")
    tree = body.parse()
    if is_table and not isinstance(tree, exp.Query):
        raise unsupported("CREATE MACRO … AS TABLE of anything but a query")
    return CreateMacro(name, parameters, tree, is_table, if_exists)


_TRUTHS = (TokenType.TRUE, TokenType.FALSE)


def _parameter(reader: TokenReader) -> tuple[str, str | None]:
    """Read a parameter, and its default."""
    # Only literals: DuckLake stores other defaults in a form that it cannot read again (duckdb
    # 1.5.5).
    name = reader.identifier()
    if not reader.left:
        return name, None
    if reader.left[0].text not in (":=", "=>"):
        raise unsupported(f"CREATE MACRO with a type of a parameter (cast {name} in the macro); it")
    reader.at += 1
    sign = "-" if reader.accept("-") else ""
    value = reader.next if len(reader.left) == 1 else None
    if value is not None and value.token_type == TokenType.STRING and not sign:
        return name, quote_literal(value.text)
    if value is not None and value.token_type in (TokenType.NUMBER, *(() if sign else _TRUTHS)):
        return name, f"{sign}{value.text}"
    raise unsupported(f"CREATE MACRO with a default of {name} that is no number, text, TRUE or FALSE")


def drop(reader: TokenReader) -> Statement:
    """Read the tokens behind DROP MACRO."""
    reader.accept("TABLE")
    if_exists = reader.accept("IF", "EXISTS")
    return DropMacro(reader.name(), if_exists)
