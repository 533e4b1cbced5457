"""PREPARE name AS …, and EXECUTE name (…), which is that statement with a literal for each of its marks."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.statements.parse.parameters import marks_of, with_texts
from duckrun.statements.parse.tokens import StatementText, TokenReader
from duckrun.values.nearest import did_you_mean

_CONSTANT = (
    exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Array, exp.Struct,
    exp.PropertyEQ, exp.Identifier, exp.Interval, exp.Var, exp.Map, exp.ToMap, exp.Unhex, exp.Tuple,
)  # fmt: skip


def prepared_by(source: StatementText) -> tuple[str, StatementText]:
    """The name, in small letters, and the statement of a PREPARE; types of parameters are of no use, since each value has one."""
    reader = TokenReader(source)
    reader.expect("PREPARE")
    name = reader.identifier().lower()
    if reader.left and reader.left[0].text == "(":
        reader.brackets()
    reader.expect("AS")
    if not reader.left:
        raise reader.error("a statement")
    body = source.with_(reader.left).written
    return name, StatementText.of(body, source.dialect, abridge=source.abridge)


def executed(source: StatementText, known: Mapping[str, StatementText]) -> StatementText:
    """The statement that an EXECUTE asks for. Raises InvalidConfig for a name that nothing was prepared under, for arguments that do
    not fit its marks, and for what is no constant.
    """
    reader = TokenReader(source)
    reader.expect("EXECUTE")
    name = reader.identifier().lower()
    given: dict[int | str, str] = {}
    for part in reader.brackets() if reader.left else ():
        if part:
            key, text = _argument(source.with_(part), len(given) + 1)
            given[key] = text
    reader.end()
    if name not in known:
        raise nothing_prepared(name, known)
    body = known[name]
    marks = marks_of(body)
    missing = sorted({str(mark.key) for mark in marks if mark.key not in given})
    left = sorted(str(key) for key in given if key not in {mark.key for mark in marks})
    if missing or left:
        raise InvalidConfig(
            f"EXECUTE {name}: its statement has {len({mark.key for mark in marks})} parameters, and {len(given)} were given"
            f"{'; without a value: $' + ', $'.join(missing) if missing else ''}"
            f"{'; not in it: $' + ', $'.join(left) if left else ''}."
        )
    return with_texts(body, marks, lambda mark: given[mark.key])


def _argument(part: StatementText, number: int) -> tuple[int | str, str]:
    """``value``, or ``name := value`` (``=>`` too)."""
    key: int | str = number
    if len(part.tokens) > 2 and (part.tokens[1].text in (":=", "=>")):
        key, part = part.tokens[0].text.lower(), part.with_(part.tokens[2:])
    tree = part.parse()
    if not all(isinstance(node, _CONSTANT) for node in tree.walk()):
        raise InvalidConfig(
            f"EXECUTE takes constants, not {part.written}: compute it first, or write it into the statement."
        )
    return key, part.written if isinstance(tree, exp.Literal) else f"({part.written})"


def nothing_prepared(name: str, known: Mapping[str, StatementText]) -> InvalidConfig:
    """The error about a name that no PREPARE of this session has given."""
    return InvalidConfig(
        f"Nothing is prepared as {name} in this session.{did_you_mean(name, known)} PREPARE {name} AS … first."
    )
