"""Expansion of macro calls in a statement, before it is parsed.

So the tables of a macro are pinned like all others. DuckDB expands the trees in the same way. An
argument replaces its parameter everywhere, and keeps the meaning of its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from duckrun.errors import InvalidConfig
from duckrun.sql.edits import Edit, edited
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.result_names import select_items
from duckrun.statements.parse.by_tokens import may_be_alias
from duckrun.statements.parse.tokens import StatementText, TokenReader, is_name, word_of
from duckrun.values.macros import Macro, MacroForm


@dataclass(frozen=True)
class FoundMacro:
    """A macro that a statement calls.

    ``find`` finds the macros that it calls itself. ``qualified`` returns a form's text with
    qualified table names.
    """

    macro: Macro
    find: Find
    qualified: Callable[[MacroForm], str]


Find = Callable[[tuple[str, ...]], FoundMacro | None]
"""Return the macro of a name, by its parts; None for any other function."""

_NO_CALL = (
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET,
    TokenType.DOT,
)  # fmt: skip
"""Tokens before a name with brackets that is no call but a column list or part of a longer name."""
_NO_CALL_WORDS = ("INTO", "TABLE", "VIEW", "EXISTS", "OVERWRITE", "AS", "MACRO", "FUNCTION", "UPDATE")
_LISTS = (TokenType.SELECT, TokenType.RETURNING)


def expanded(source: StatementText, find: Find, within: tuple[str, ...] = ()) -> StatementText:
    """Return the statement with each macro call replaced by the macro's text.

    Args:
        source: the statement.
        find: finds a macro by its name.
        within: the macros that are being expanded.

    Raises:
        InvalidConfig: for arguments that a macro does not take, and for a macro that calls itself.
    """
    if source.is_unpacked:  # the text lacks its first word
        rest = expanded(replace(source, tokens=source.tokens[1:], is_unpacked=False), find, within)
        return replace(rest, tokens=(source.tokens[0], *rest.tokens), is_unpacked=True)
    edits: list[Edit] = []
    for call in _calls(source, find):
        if str(call.definition.macro) in within:
            circle = " -> ".join((*within, str(call.definition.macro)))
            raise InvalidConfig(f"Macro {call.definition.macro} calls itself: {circle} is a circle.")
        edits.append((source.tokens[call.start].start, source.tokens[call.end].end, _text(call, find, within)))
    if not edits:
        return source
    text = edited(source.text, edits, source.tokens[0].start, source.tokens[-1].end + 1)
    return StatementText.of(text, source.dialect, abridge=source.abridge)


@dataclass(frozen=True)
class _Call:
    """A macro call, from one token to another."""

    definition: FoundMacro
    source: StatementText
    start: int
    name_end: int
    end: int
    arguments: tuple[tuple[Token, ...], ...]
    is_item: bool
    """True if the call is a whole item of a SELECT list, without an alias."""

    @property
    def next(self) -> tuple[Token, ...]:
        return self.source.tokens[self.end + 1 :]


def _calls(source: StatementText, find: Find) -> Iterator[_Call]:
    """Yield the outermost macro calls of a statement."""
    tokens, words = source.tokens, source.words
    items = cache(lambda: dict(select_items(tokens, kinds=_LISTS)))
    at = 0
    while at < len(tokens):
        last, before = _end_of_name(tokens, at), tokens[at - 1] if at else None
        starts = last is not None and (
            before is None
            or (before.token_type not in _NO_CALL and word_of(before) not in _NO_CALL_WORDS)
            or (before.token_type == TokenType.R_PAREN and tokens[at].start in items())  # behind DISTINCT ON (…)
        )
        macro = find(tuple(token.text for token in tokens[at : (last or at) + 1 : 2])) if starts else None
        if macro is None or last is None:
            at += 1
            continue
        reader = TokenReader(source, last + 1)
        arguments = tuple(part for part in reader.brackets() if part)
        end = reader.at - 1
        if reader.accept("AS") and words[reader.at : reader.at + 1] in (("(",), ("MATERIALIZED",), ("NOT",)):
            at += 1  # a common table expression of that name, with its columns
            continue
        yield _Call(macro, source, at, last, end, arguments, items().get(tokens[at].start) == tokens[end].end)
        at = end + 1


def _end_of_name(tokens: Sequence[Token], at: int) -> int | None:
    """Return the last token of a function's name; None if no function call starts here."""
    last = at
    while is_name(tokens[last]) and last + 1 < len(tokens):
        if tokens[last + 1].token_type == TokenType.L_PAREN:
            return last
        if tokens[last + 1].token_type != TokenType.DOT or last + 2 == len(tokens):
            return None
        last += 2
    return None


def _text(call: _Call, find: Find, within: tuple[str, ...]) -> str:
    """Return the text that replaces a call."""
    macro = call.definition.macro
    form, values = _form(call, find, within)
    before = word_of(call.source.tokens[call.start - 1]) if call.start else ""
    if form.is_table != (before in ("FROM", "JOIN")) and (
        form.is_table is False or before not in (",", "LATERAL", "(")
    ):
        example = f"SELECT … FROM {macro}(…)" if form.is_table else f"SELECT {macro}(…)"
        raise InvalidConfig(
            f"Macro {macro} gives {'a table' if form.is_table else 'a value, and no table'}: {example}."
        )
    inner = StatementText.of(call.definition.qualified(form), "duckdb")
    text = f"({_filled(expanded(inner, call.definition.find, (*within, str(macro))), values)})"
    if form.is_table and not may_be_alias(call.next):
        return f"{text} AS {quote_identifier(macro.name)}"
    if call.is_item and not form.is_table:  # keeps the column name that DuckDB generates
        name = "".join(token.text for token in call.source.tokens[call.start : call.name_end + 1])
        example = ", ".join(call.source.with_(argument).written for argument in call.arguments)
        return f"{text} AS {quote_identifier(f'{name}({example})')}"
    return text


def _form(call: _Call, find: Find, within: tuple[str, ...]) -> tuple[MacroForm, dict[str, str]]:
    """Return the macro's form that fits the arguments of a call, and SQL of each parameter."""
    placed: list[str] = []
    named: dict[str, str] = {}
    for argument in call.arguments:
        part = call.source.with_(argument)
        is_named = len(argument) > 2 and argument[1].text in (":=", "=>")
        text = expanded(part.with_(argument[2:]) if is_named else part, find, within)
        argument_sql = text.written
        argument_sql = argument_sql if len(text.tokens) == 1 else f"({argument_sql})"
        if is_named:
            named[argument[0].text.lower()] = argument_sql
        else:
            placed.append(argument_sql)
    for form in call.definition.macro.forms:
        names = [name.lower() for name, _ in form.parameters]
        values = {**dict(zip(names, placed, strict=False)), **named}
        missing = [name for name, default in form.parameters if name.lower() not in values and default is None]
        if len(placed) <= len(names) and not missing and named.keys() <= {*names[len(placed) :]}:
            defaults = {name.lower(): default for name, default in form.parameters if default is not None}
            return form, {**defaults, **values}
    takes = " or ".join(
        f"({', '.join(n if d is None else f'{n} := {d}' for n, d in form.parameters)})"
        for form in call.definition.macro.forms
    )
    raise InvalidConfig(
        f"Macro {call.definition.macro} takes {takes}; it was called with {len(call.arguments)} arguments."
    )


def _filled(body: StatementText, values: dict[str, str]) -> str:
    """Replace the parameters in a macro's text by its arguments."""
    replacements: list[Edit] = []
    for column in body.parse().find_all(exp.Column):
        first = column.parts[0]
        value = values.get(first.name.lower())
        if value is not None and "start" in first.meta and not _is_bound(column, first.name):
            replacements.append((first.meta["start"], first.meta["end"], value))
    return edited(body.text, sorted(replacements), body.tokens[0].start, body.tokens[-1].end + 1)


def _is_bound(column: exp.Column, name: str) -> bool:
    """Return True for a lambda's parameter, or for a name that begins with a table's alias."""
    node: exp.Expr | None = column
    while node is not None:
        if isinstance(node, exp.Lambda) and any(each.name.lower() == name.lower() for each in node.expressions):
            return True
        if len(column.parts) > 1 and isinstance(node, exp.Select):
            tables = [each for each in node.find_all(exp.Table, exp.Subquery) if each.parent_select is node]
            if any(each.alias_or_name.lower() == name.lower() for each in tables):
                return True
        if isinstance(node, exp.PropertyEQ | exp.Kwarg) and node.this is column:
            return True
        node = node.parent
    return False
