"""Calls of a catalog's macros, in whose place the macro's own text is put, before a statement is read: its tables are then pinned as all others are.

DuckDB does the same with the trees: an argument stands wherever its parameter does, and a name in it means what it means there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from duckrun.errors import InvalidConfig
from duckrun.sql.names import plain_error, quote_identifier
from duckrun.statements.parse.by_tokens import may_be_alias
from duckrun.statements.parse.tokens import StatementText, TokenReader, word_of
from duckrun.values.macros import Macro, MacroForm


@dataclass(frozen=True)
class FoundMacro:
    """A macro, what finds those that it calls itself, and what makes its texts ones that can stand anywhere: with full names of tables."""

    macro: Macro
    find: Find
    qualified: Callable[[MacroForm], str]


Find = Callable[[tuple[str, ...]], FoundMacro | None]
"""The macro of a name, by its parts; None for any other function."""

_NO_CALL = (
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.DOT,
)  # fmt: skip
"""Tokens behind which a name with brackets is no call: a list of columns, or a part of a longer name."""
_NO_CALL_WORDS = ("INTO", "TABLE", "VIEW", "EXISTS", "OVERWRITE", "AS", "MACRO", "FUNCTION", "UPDATE")
_LISTS = ("SELECT", "RETURNING")
_END_OF_LIST = (
    "FROM", "WHERE", "GROUP", "GROUP BY", "HAVING", "WINDOW", "QUALIFY", "ORDER", "ORDER BY", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT",
    "SAMPLE", "INTO",
)  # fmt: skip


def expanded(source: StatementText, find: Find, within: tuple[str, ...] = ()) -> StatementText:
    """The statement with each call of a macro as the macro's text. Raises InvalidConfig for arguments that it does not take, and a circle."""
    if source.is_unpacked:  # its first word is not in the text
        rest = expanded(replace(source, tokens=source.tokens[1:], is_unpacked=False), find, within)
        return replace(rest, tokens=(source.tokens[0], *rest.tokens), is_unpacked=True)
    pieces: list[str] = []
    at = source.tokens[0].start if source.tokens else 0
    for call in _calls(source, find):
        if str(call.found.macro) in within:
            circle = " -> ".join((*within, str(call.found.macro)))
            raise InvalidConfig(f"Macro {call.found.macro} calls itself: {circle} is a circle.")
        pieces += [source.text[at : source.tokens[call.start].start], _text(call, find, within)]
        at = source.tokens[call.end].end + 1
    if not pieces:
        return source
    text = "".join([*pieces, source.text[at : source.tokens[-1].end + 1]])
    return StatementText.of(text, source.dialect, abridge=source.abridge)


@dataclass(frozen=True)
class _Call:
    """A call of a macro, from one token to another."""

    found: FoundMacro
    source: StatementText
    start: int
    name_end: int
    end: int
    arguments: tuple[tuple[Token, ...], ...]
    is_item: bool
    """Whether it is a whole item of a SELECT list, without a name of its own."""

    @property
    def next(self) -> tuple[Token, ...]:
        return self.source.tokens[self.end + 1 :]


def _calls(source: StatementText, find: Find) -> Iterator[_Call]:
    """The outermost calls of a statement."""
    tokens, words = source.tokens, source.words
    in_list, opened = [False], [False]
    at, behind_on = 0, False
    while at < len(tokens):
        if words[at] in _LISTS:
            in_list[-1] = True
        elif words[at] in _END_OF_LIST:
            in_list[-1] = False
        elif tokens[at].token_type == TokenType.L_PAREN:
            in_list.append(False)
            opened.append(words[max(at - 2, 0) : at] == ("DISTINCT", "ON"))
        elif tokens[at].token_type == TokenType.R_PAREN and len(in_list) > 1:
            in_list.pop()
            behind_on = opened.pop()
        last = _end_of_name(tokens, at)
        before = tokens[at - 1] if at else None
        is_list_begun = before is not None and before.token_type == TokenType.R_PAREN and behind_on
        starts = last is not None and (
            before is None
            or is_list_begun
            or (before.token_type not in _NO_CALL and word_of(before) not in _NO_CALL_WORDS)
        )
        found = find(tuple(token.text for token in tokens[at : (last or at) + 1 : 2])) if starts else None
        if found is None or last is None:
            at += 1
            continue
        reader = TokenReader(source)
        reader.at = last + 1
        arguments = tuple(part for part in reader.brackets() if part)
        if (
            reader.left
            and words[reader.at] == "AS"
            and words[reader.at + 1 : reader.at + 2] in (("(",), ("MATERIALIZED",), ("NOT",))
        ):
            at += 1  # a common table expression of that name, with its columns
            continue
        begins = (
            is_list_begun or before is not None and word_of(before) in ("SELECT", "DISTINCT", "ALL", ",", "RETURNING")
        )
        ends = not reader.left or words[reader.at] in (",", ")", *_END_OF_LIST)
        yield _Call(found, source, at, last, reader.at - 1, arguments, in_list[-1] and begins and ends)
        at = reader.at


def _end_of_name(tokens: Sequence[Token], at: int) -> int | None:
    """The last token of a name that brackets follow; None where none begins."""
    last = at
    while True:
        token = tokens[last]
        if token.token_type != TokenType.IDENTIFIER and not token.text.isidentifier():
            return None
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            return None
        if last + 1 == len(tokens):
            return None
        if tokens[last + 1].token_type == TokenType.L_PAREN:
            return last
        if tokens[last + 1].token_type != TokenType.DOT or last + 2 >= len(tokens):
            return None
        last += 2


def _text(call: _Call, find: Find, within: tuple[str, ...]) -> str:
    """What stands in the place of a call."""
    macro = call.found.macro
    form, values = _form(call, find, within)
    before = word_of(call.source.tokens[call.start - 1]) if call.start else ""
    if form.is_table != (before in ("FROM", "JOIN")) and (
        form.is_table is False or before not in (",", "LATERAL", "(")
    ):
        said = f"SELECT … FROM {macro}(…)" if form.is_table else f"SELECT {macro}(…)"
        raise InvalidConfig(f"Macro {macro} gives {'a table' if form.is_table else 'a value, and no table'}: {said}.")
    body = call.found.qualified(form)
    inner = StatementText.of(body, "duckdb")
    text = f"({_filled(expanded(inner, call.found.find, (*within, str(macro))), values, macro)})"
    if form.is_table and not may_be_alias(call.next):
        return f"{text} AS {quote_identifier(macro.name)}"
    if call.is_item and not form.is_table:  # named as DuckDB names it
        name = "".join(token.text for token in call.source.tokens[call.start : call.name_end + 1])
        said = ", ".join(call.source.with_(argument).written for argument in call.arguments)
        return f"{text} AS {quote_identifier(f'{name}({said})')}"
    return text


def _form(call: _Call, find: Find, within: tuple[str, ...]) -> tuple[MacroForm, dict[str, str]]:
    """The form of a macro that takes the arguments of a call, and what they say: parameter -> SQL."""
    placed: list[str] = []
    named: dict[str, str] = {}
    for argument in call.arguments:
        part = call.source.with_(argument)
        is_named = len(argument) > 2 and argument[1].text in (":=", "=>")
        text = expanded(part.with_(argument[2:]) if is_named else part, find, within)
        said = text.written
        said = said if len(text.tokens) == 1 else f"({said})"
        if is_named:
            named[argument[0].text.lower()] = said
        else:
            placed.append(said)
    for form in call.found.macro.forms:
        names = [name.lower() for name, _ in form.parameters]
        given = {**dict(zip(names, placed, strict=False)), **named}
        missing = [name for name, default in form.parameters if name.lower() not in given and default is None]
        if len(placed) <= len(names) and not missing and named.keys() <= {*names[len(placed) :]}:
            defaults = {name.lower(): default for name, default in form.parameters if default is not None}
            return form, {**defaults, **given}
    takes = " or ".join(
        f"({', '.join(n if d is None else f'{n} := {d}' for n, d in form.parameters)})"
        for form in call.found.macro.forms
    )
    raise InvalidConfig(f"Macro {call.found.macro} takes {takes}; it was called with {len(call.arguments)} arguments.")


def _filled(body: StatementText, values: dict[str, str], macro: Macro) -> str:
    """A macro's text with its arguments in the place of its parameters."""
    try:
        tree = body.parse()
    except SqlglotError as error:
        raise InvalidConfig(f"Macro {macro} cannot be read: {plain_error(error)}") from error
    found: list[tuple[int, int, str]] = []
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        value = values.get(first.name.lower())
        if value is not None and "start" in first.meta and not _is_bound(column, first.name):
            found.append((first.meta["start"], first.meta["end"], value))
    pieces, at = [], body.tokens[0].start
    for start, end, value in sorted(found):
        pieces += [body.text[at:start], value]
        at = end + 1
    return "".join([*pieces, body.text[at : body.tokens[-1].end + 1]])


def _is_bound(column: exp.Column, name: str) -> bool:
    """True for a name that a lambda around it binds, or that is the alias of a table."""
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
