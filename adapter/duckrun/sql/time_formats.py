"""Translation between DuckDB's ``strftime`` and ``strptime`` formats and Spark's datetime patterns.

Spark's patterns lack letters for some codes, read letters of a text as fields, and parse by other
rules. So a format is split into its codes. Spark's ``date_format`` gets the codes that it knows,
with all text quoted; other codes are computed. A regular expression parses a text. It accepts what
DuckDB accepts.

Source: DuckDB, Date Format Functions; Apache Spark, Datetime Patterns for Formatting and Parsing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.building import call, spark_sql, untranslated, untranslated_to_duckdb

_SHORTHANDS = {"c": "%Y-%m-%d %H:%M:%S", "x": "%Y-%m-%d", "X": "%H:%M:%S"}
_CODES = frozenset("aAwudbBhmyYGHIpMSfgnzZjUWVcxX%") | {f"-{code}" for code in "dmyHIMSj"}
_PATTERNS = {
    "a": "EEE", "A": "EEEE", "d": "dd", "-d": "d", "b": "MMM", "h": "MMM", "B": "MMMM", "m": "MM", "-m": "M", "H": "HH",
    "-H": "H", "I": "hh", "-I": "h", "p": "a", "M": "mm", "-M": "m", "S": "ss", "-S": "s", "f": "SSSSSS", "g": "SSS",
    "j": "DDD", "-j": "D",
}  # fmt: skip
"""Spark's pattern letters by code, where both give the same text for every date."""
_COMPUTED = {
    # Spark's yyyy is the year of the era, with a sign beyond 9999.
    "Y": "if(year(t) BETWEEN 0 AND 999, lpad(CAST(year(t) AS STRING), 4, '0'), CAST(year(t) AS STRING))",
    "y": "lpad(CAST(abs(year(t) % 100) AS STRING), 2, '0')",
    "-y": "CAST(abs(year(t) % 100) AS STRING)",
    "G": "lpad(CAST(extract(YEAROFWEEK FROM t) % 10000 AS STRING), 4, '0')",
    "V": "lpad(CAST(weekofyear(t) AS STRING), 2, '0')",
    "w": "CAST(dayofweek(t) - 1 AS STRING)",
    "u": "CAST(weekday(t) + 1 AS STRING)",
    # Weeks begin on Sunday (U) or Monday (W); days before the first week are week 0.
    "U": "lpad(CAST((dayofyear(t) + 7 - dayofweek(t)) DIV 7 AS STRING), 2, '0')",
    "W": "lpad(CAST((dayofyear(t) + 6 - weekday(t)) DIV 7 AS STRING), 2, '0')",
}
"""Spark SQL of codes without a pattern letter, over the value ``t``."""

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_SHORT_MONTHS = tuple(name[:3] for name in _MONTHS)
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_TWO_DIGITS = r"\d{1,2}+"  # possessive: DuckDB reads as many digits as possible, without backtracking
_PARSED = {
    "Y": r"\d{1,4}+",
    **dict.fromkeys(("y", "m", "d", "H", "M"), _TWO_DIGITS),
    "j": r"\d{1,3}+",
    "I": r"(?!00)\d{1,2}+",
    "S": r"(?!60)\d{1,2}+",  # Spark takes second 60 for the next minute
    "f": r"\d{1,6}+",
    "g": r"\d{1,3}+",
    "p": "(?i:AM|PM)",
    **dict.fromkeys(("b", "h"), f"(?i:{'|'.join(_SHORT_MONTHS)})"),
    "B": f"(?i:{'|'.join(_MONTHS)})",
    "a": f"(?i:{'|'.join(day[:3] for day in _DAYS)})",
    "A": f"(?i:{'|'.join(_DAYS)})",
}
"""Java regular expressions of what DuckDB accepts for each code."""
_FIELDS = {"b": "B", "h": "B", "g": "f", "A": "a"}
"""Codes that mean the same field as another code."""
_SPACES = r"[ \t\n\x0B\f\r]"


@dataclass(frozen=True)
class _Part:
    """One code of a format, or the text between two codes."""

    code: str = ""
    """Letter behind the percent sign, with the hyphen of ``%-d``; empty for text."""
    text: str = ""


def formatted(value: exp.Expr, time_format: exp.Expr) -> exp.Expr:
    """Return ``strftime(value, time_format)`` as a Spark expression.

    Raises:
        UnsupportedFeature: for a format that is not a literal, and for ``%z`` and ``%Z``.
        InvalidConfig: for a code that DuckDB does not know.
    """
    if isinstance(value, exp.Literal) and not isinstance(time_format, exp.Literal):
        value, time_format = time_format, value  # DuckDB takes the two in either order
    pieces: list[exp.Expr] = []
    pattern = text = ""
    for part in [*_parts("strftime", time_format), None]:
        if part is not None and part.code == "n":
            # DuckDB 1.5.5 writes uninitialized memory if %n stands beside other codes.
            raise untranslated("strftime with %n", "use %f, or ")
        if part is not None and not part.code:
            text += part.text
            continue
        pattern += _quoted(text)
        text = ""
        letters = "" if part is None else _PATTERNS.get(part.code, "")
        if letters and pattern[-1:] != letters[0]:
            pattern += letters
            continue
        # A repeated letter is one field: two adjacent fields of one letter need two patterns.
        if pattern or (part is None and not pieces):
            pieces.append(call("date_format", value.copy(), exp.Literal.string(pattern)))
        if part is not None and not letters:
            pieces.append(spark_sql(_COMPUTED[part.code], t=value))
        pattern = letters
    return pieces[0] if len(pieces) == 1 else call("concat", *pieces)


def parsed(text: exp.Expr, time_format: exp.Expr, *, lenient: bool = False) -> exp.Expr:
    """Return ``strptime(text, time_format)`` as a Spark expression.

    Args:
        text: the text to parse.
        time_format: a format, or a list of formats.
        lenient: True for ``try_strptime``.

    Raises:
        UnsupportedFeature: for a format that is not a literal, and for codes of time zones and
            weeks.
        InvalidConfig: for a code that DuckDB does not know.
    """
    name = "try_strptime" if lenient else "strptime"
    formats = time_format.expressions if isinstance(time_format, exp.Array) else [time_format]
    times = [_parsed_by(name, text, each) for each in formats]
    if lenient:
        return call("coalesce", *times) if len(times) > 1 else times[0]
    failure = spark_sql(
        "CAST(raise_error(concat('Could not parse string \"', x, '\" according to format specifier ', formats)) "
        "AS TIMESTAMP_NTZ)",
        x=text,
        formats=exp.Literal.string(", ".join(each.name for each in formats)),
    )
    parsed = call("coalesce", *times, failure)
    return spark_sql("if(x IS NULL, CAST(NULL AS TIMESTAMP_NTZ), parsed)", x=text, parsed=parsed)


def _parsed_by(name: str, text: exp.Expr, time_format: exp.Expr) -> exp.Expr:
    """Return a text as a time by one format; NULL if the text does not match."""
    groups: dict[str, int] = {}
    pattern = rf"\A{_SPACES}*+"
    for part in _parts(name, time_format):
        code = part.code.removeprefix("-")  # a number is read with or without zeros by either spelling
        if not code:
            pattern += _literal_pattern(part.text)
            continue
        if code not in _PARSED:
            raise untranslated(f"{name} with %{code}")
        field = _FIELDS.get(code, code)
        if field in groups:
            raise untranslated(f"{name} with two codes of one field ({time_format.name!r})")
        groups[field] = len(groups) + 1
        pattern += f"({_PARSED[code]})"
    if "j" in groups and groups.keys() & {"m", "B", "d"}:
        raise untranslated(f"{name} with a day of the year beside a month or a day")
    if "p" in groups and "I" not in groups or {"H", "I"} <= groups.keys():
        raise untranslated(f"{name} with %p but without %I, or with %I and %H,")
    whole = exp.Literal.string(rf"{pattern}{_SPACES}*+\z")
    fields = {
        code: call("regexp_extract", text.copy(), whole.copy(), exp.Literal.number(group))
        for code, group in groups.items()
    }
    time = spark_sql(_time_of(fields), **fields)
    return spark_sql("if(x RLIKE whole, time, CAST(NULL AS TIMESTAMP_NTZ))", x=text, whole=whole, time=time)


def _time_of(fields: Collection[str]) -> str:
    """Return SQL of a time from columns named by the codes; NULL for no date, as 30 February."""
    numbers = {code: f"CAST({code} AS INT)" for code in fields}
    year = numbers.get("Y", "1900")
    if "y" in numbers:
        year = f"({numbers['y']} + if({numbers['y']} < 69, 2000, 1900))"
    month, day = numbers.get("m", "1"), numbers.get("d", "1")
    if "B" in fields:
        month = f"((instr('{''.join(_SHORT_MONTHS)}', lower(substr(B, 1, 3))) + 2) DIV 3)"
    if "j" in numbers:  # DuckDB goes on into the next year
        date = f"date_add(make_date({year}, 1, 1), {numbers['j']} - 1)"
        ordinal = f"if({numbers['j']} BETWEEN 1 AND 366, 1, 0)"
        year, month, day = f"year({date})", f"month({date}) * {ordinal}", f"day({date})"
    hour = numbers.get("H", "0")
    if "I" in numbers:
        afternoon = "if(upper(p) = 'PM', 12, 0)" if "p" in fields else None
        of_day = numbers["I"] if afternoon is None else f"{numbers['I']} % 12 + {afternoon}"
        hour = f"if({numbers['I']} BETWEEN 1 AND 12, {of_day}, 24)"
    seconds, fraction = ("S" if "S" in fields else "'0'"), ("f" if "f" in fields else "'0'")
    seconds = f"CAST(concat({seconds}, '.', substr(rpad({fraction}, 6, '0'), 1, 6)) AS DECIMAL(16, 6))"
    return f"try_make_timestamp_ntz({year}, {month}, {day}, {hour}, {numbers.get('M', '0')}, {seconds})"


def _quoted(text: str) -> str:
    """Return a literal text inside a Spark datetime pattern."""
    return "'" + text.replace("'", "''") + "'" if re.search(r"[A-Za-z'#{}\[\]]", text) else text


def _literal_pattern(text: str) -> str:
    """Return the regular expression of a text between codes; DuckDB takes any number of spaces."""
    parts = re.split(rf"({_SPACES}+)", text)
    return "".join(f"{_SPACES}++" if i % 2 else re.sub(r"(\W)", r"\\\1", part) for i, part in enumerate(parts))


def _parts(name: str, time_format: exp.Expr) -> Iterator[_Part]:
    """Yield the codes of a format and the texts between them."""
    if not (isinstance(time_format, exp.Literal) and time_format.is_string):
        raise untranslated(f"{name} with a format that is not a literal")
    text = time_format.name
    for match in re.finditer(r"%(-?.?)|[^%]+", text, re.DOTALL):
        code = match[1]
        if code is None:
            yield _Part(text=match[0])
        elif code not in _CODES:
            raise InvalidConfig(f"{name} does not know the format specifier {match[0]!r} of {text!r}.")
        elif code == "%":
            yield _Part(text="%")
        elif code in ("z", "Z"):
            raise untranslated(f"{name} with %{code}")
        elif code in _SHORTHANDS:
            yield from _parts(name, exp.Literal.string(_SHORTHANDS[code]))
        else:
            yield _Part(code=code)


_OF_PATTERNS = {
    "yyyy": "%Y", "yy": "%y", "M": "%-m", "MM": "%m", "MMM": "%b", "MMMM": "%B", "L": "%-m", "LL": "%m",
    "LLL": "%b", "LLLL": "%B", "d": "%-d", "dd": "%d", "D": "%-j", "DDD": "%j", "E": "%a", "EE": "%a", "EEE": "%a",
    "EEEE": "%A", "H": "%-H", "HH": "%H", "h": "%-I", "hh": "%I", "m": "%-M", "mm": "%M", "s": "%-S", "ss": "%S",
    "SSS": "%g", "SSSSSS": "%f", "a": "%p",
}  # fmt: skip
"""DuckDB codes by Spark's pattern letters, where both give the same text."""
_PATTERN_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[\[\]#{}']|[^A-Za-z'\[\]#{}]+", re.DOTALL)


def duckdb_format(pattern: str) -> str:
    """Return the ``strftime`` format for a Spark datetime pattern.

    Args:
        pattern: the Spark pattern.

    Raises:
        UnsupportedFeature: for letters without a code.
    """
    return "".join(_code_of(part, pattern) for part in _PATTERN_PARTS.finditer(pattern))


def duckdb_format_to_parse(pattern: str) -> str:
    """Return the ``strptime`` format for a datetime pattern that Spark parses by.

    Args:
        pattern: the Spark pattern.

    Raises:
        UnsupportedFeature: for letters without a code, and for a pattern without a four-digit year.
            The engines assume different years.
    """
    time_format = duckdb_format(pattern)
    codes = set(re.findall(r"%%|%-?\w", time_format))
    if "%Y" not in codes or ("%I" in codes) != ("%p" in codes) or codes & {"%a", "%A", "%-I"}:
        raise untranslated_to_duckdb(f"Parsing texts by the datetime pattern {pattern!r}")
    return time_format


def _code_of(part: re.Match[str], pattern: str) -> str:
    text = part[0]
    if part[1] is not None:
        return (part[1].replace("''", "'") or "'").replace("%", "%%")
    if part[2] is not None or text in tuple("[]#{}'"):
        if text not in _OF_PATTERNS:
            raise untranslated_to_duckdb(f"{text} in the datetime pattern {pattern!r}")
        return _OF_PATTERNS[text]
    return text.replace("%", "%%")
