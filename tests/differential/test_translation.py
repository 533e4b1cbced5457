"""Functions of each engine with each format, unit and option, in the other one's SQL: the same values, or a refusal by name.

Each expression is computed by the engine that it is written for and, translated, by the other, over tables of edge values.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import duckdb
import pytest

from duckrun.errors import DuckrunError
from duckrun.sql.dialects import text_in, tree_in
from tests.differential.corpus import plain_value
from tests.drawing import everything, seed

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.drawn(2)]

CODES = (
    "%a", "%A", "%w", "%u", "%d", "%-d", "%b", "%h", "%B", "%m", "%-m", "%y", "%-y", "%Y", "%G", "%H", "%-H", "%I", "%-I", "%p",
    "%M", "%-M", "%S", "%-S", "%f", "%g", "%j", "%-j", "%U", "%W", "%V", "%c", "%x", "%X", "%%",
)  # fmt: skip
TEXTS = ("", "a", "Mon M", "it''s", "''", "[x] {y}#", "T", " ", "é", "%%")
TIMES = (
    "timestamp '2024-03-05 07:08:09.0123'", "timestamp '2024-12-31 23:59:59.999999'", "timestamp '2023-01-01 00:00:00'",
    "timestamp '1999-01-03 12:00:00.5'", "timestamp '2016-02-29 00:59:01.000001'", "timestamp '1969-12-31 13:05:00'",
    "timestamp '0012-12-31 01:02:03'", "timestamp '0999-06-15 11:59:59'", "timestamp '9999-12-31 23:00:00'",
    "timestamp '12024-12-31 00:00:00'", "timestamp '2020-12-28 10:10:10.1'", "timestamp '2021-01-03 20:00:00'", "null::timestamp",
)  # fmt: skip
PARSED = (
    ("%Y-%m-%d", ("2024-03-05", "2024-3-5", "24-03-05", "2024-02-30", "2024-13-01", "2024-001-5", " 2024-03-05 ", "x", "", "12024-1-1")),
    ("%Y%m%d", ("20240305", "2024115", "202403", "20240230", "2024-1-1")),
    ("%d/%m/%y", ("05/03/69", "5/3/68", "31/12/00", "1/1/1999", "32/1/20")),
    ("%Y-%m-%d %H:%M:%S", ("2024-03-05 07:08:09", "2024-3-5 7:8:9", "2024-03-05 24:00:00", "2024-03-05 23:59:60", "2024-03-05  1:1:1")),
    ("%Y-%m-%dT%H:%M:%S.%f", ("2024-03-05T07:08:09.5", "2024-03-05T07:08:09.123456", "2024-03-05T07:08:09.1234567", "2024-03-05t07:08:09.5")),
    ("%x %X", ("2024-03-05 07:08:09", "2024-03-05")),
    ("%c", ("2024-03-05 07:08:09",)),
    ("%b %d %Y", ("Mar 5 2024", "mar 05 2024", "March 5 2024", "May 1 2024", "Mai 1 2024")),
    ("%A, %d. %B %Y", ("Tuesday, 5. March 2024", "friday, 5. MARCH 2024", "Tue, 5. March 2024")),
    ("%a %h %-d", ("Tue Mar 5",)),
    ("%Y %j", ("2024 065", "2023 366", "2024 0", "2024 367")),
    ("%I:%M %p", ("12:00 AM", "12:30 pm", "1:05 PM", "13:00 PM", "00:10 AM")),
    ("%Y %I", ("2024 12", "2024 13")),
    ("%H:%M", ("10:30", "10:60")),
    ("%S.%g", ("5.12", "5.1234")),
    ("100%% %Y", ("100% 2024", "100 2024")),
    ("[%Y] (%m)", ("[2024] (1)", "2024 1")),
)  # fmt: skip
UNITS = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century",
    "millennium", "isoyear",
)  # fmt: skip
PARTS = (
    *UNITS,
    "dow",
    "isodow",
    "doy",
    "weekday",
    "dayofyear",
    "weekofyear",
    "yearweek",
    "epoch",
    "era",
    "julian",
    "mon",
    "yr",
    "h",
)
STRINGS = (
    "'abc'",
    "'ABC'",
    "''",
    "'a.b.c'",
    "'äß😀x'",
    "'aXbX'",
    "' a b '",
    "'a\\b$1'",
    "'a''b'",
    "'%_%'",
    "null::varchar",
)
NUMBERS = ("0", "1", "-1", "7", "-7", "2147483647", "-2147483648", "null::int")
HALVES = ("0.0", "1.5", "-1.5", "2.5::double", "-2.5::double", "0.1")
NO_NUMBERS = ("'nan'::double", "'inf'::double", "null::double")
DOUBLES = (*HALVES, "1e20", "1e-7", *NO_NUMBERS)
ON_TIMES = (
    *(f"date_trunc('{unit}', t)" for unit in UNITS),
    *(f"date_trunc('{unit}', t::date)" for unit in UNITS),
    *(f"date_part('{part}', t)" for part in PARTS),
    *(f"extract({part} from t::date)" for part in ("dow", "isodow", "doy", "week", "year", "quarter", "isoyear", "decade", "century")),
    *(f"date_diff('{unit}', t, timestamp '2020-06-15 12:34:56.789')" for unit in UNITS),
    *(f"date_sub('{unit}', t, timestamp '2020-06-15 12:34:56.789')" for unit in UNITS),
    *(f"t + interval 1 {unit}" for unit in ("microsecond", "millisecond", "second", "hour", "day", "week", "month", "quarter", "year", "decade")),
    "dayname(t)", "monthname(t)", "last_day(t)", "weekday(t)", "isodow(t)", "yearweek(t)", "dayofyear(t)", "weekofyear(t)",
    "era(t)", "epoch(t)", "epoch_ms(t)", "epoch_us(t)", "century(t)", "decade(t)", "millennium(t)", "t::varchar", "t::date::varchar",
    "time_bucket(interval 15 minutes, t)", "t::date + 1", "t::date - date '2020-01-01'", "age(t, timestamp '2020-01-01')",
    "make_date(year(t), 2, 3)", "microsecond(t)", "millisecond(t)", "second(t)", "strftime(t::date, '%d.%m.%Y')",
)  # fmt: skip
ON_STRINGS = (
    *(f"regexp_{name}(s, 'B|c'{options})" for name in ("matches", "full_match") for options in ("", ", 'i'", ", 'c'", ", 's'", ", 'l'")),
    *(f"regexp_replace(s, '(a|B)', '[\\1$1]'{options})" for options in ("", ", 'g'", ", 'gi'", ", 'i'")),
    *(f"regexp_extract(s, '(a)(b)?'{group})" for group in ("", ", 0", ", 1", ", 2", ", 0, 'i'")),
    *(f"regexp_extract_all(s, '[a-c]'{group})" for group in ("", ", 0", ", 0, 'i'")),
    *(f"{name}(s, '{by}')" for name in ("string_split", "str_split", "split", "string_split_regex", "regexp_split_to_array")
      for by in (".", "b", "", "X|b")),
    *(f"split_part(s, '.', {n})" for n in (1, 2, -1, 0, 9)),
    *(f"{name}(s, {n})" for name in ("left", "right") for n in (0, 1, 2, -1, -9, 10, "length(s) - 2")),
    *(f"substring(s, {start}{length})" for start in (0, 1, 2, -1, -2, -5, -9, 9, "length(s) - 2") for length in ("", ", 1", ", 0", ", 2")),
    *(f"{name}(s, {n}, '{fill}')" for name in ("lpad", "rpad") for n in (0, 2, 5) for fill in ("x", "xy")),
    *(f"format('{pattern}', s)" for pattern in ("{}", "{:>5}", "<{0}>", "%s", "{{}}")),
    *(f"printf('{pattern}', s)" for pattern in ("%s", "%5s", "%-5s|", "%%", "{}")),
    *(f"s {operator} '{pattern}'" for operator in ("like", "ilike", "not like", "similar to", "glob", "~~~", "~", "!~", "^@")
      for pattern in ("a%", "_b_", "a", "%\\%", "A*", "[a-c]*", "")),
    "s like 'a!%' escape '!'", "s[1]", "s[-1]", "s[2:3]", "upper(s)", "lower(s)", "reverse(s)", "length(s)", "strlen(s)", "len(s)",
    "bit_length(s)", "ascii(s)", "unicode(s)", "ord(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "trim(s, 'ab ')", "ltrim(s, 'a')",
    "repeat(s, 2)", "repeat(s, 0)", "repeat(s, -1)", "replace(s, 'b', '')", "replace(s, '', 'x')", "translate(s, 'ab', 'x')", "instr(s, 'b')",
    "strpos(s, '')", "position('b' in s)", "contains(s, 'b')", "starts_with(s, 'a')", "ends_with(s, 'c')", "prefix(s, 'a')", "suffix(s, 'c')",
    "concat(s, 1, null)", "concat_ws(',', s, null, 'z')", "s || 'x'", "md5(s)", "sha256(s)", "hash(s) is null", "levenshtein(s, 'abd')",
    "hamming('abc', 'abd')", "jaccard('abc', 'abd')", "to_base64(s::blob)", "hex(s)", "chr(97)", "initcap(s)", "strip_accents(s)",
    "nfc_normalize(s)", "s::int", "try_cast(s as int)", "try_cast(s as double)", "try_cast(s as date)", "try_cast(s as boolean)",
    "array_to_string(string_split(s, '.'), '-')", "regexp_escape(s)", "url_encode(s)", "json_extract('{\"a\": 1}', '$.a')", "greatest(s, 'b')",
    "least(s, 'b')", "s < 'b'", "s between 'a' and 'b'", "s in ('abc', '')", "coalesce(s, 'none')", "nullif(s, '')", "if(s = '', 1, 2)",
)  # fmt: skip
ON_NUMBERS = (
    *(f"format('{pattern}', n)" for pattern in ("{}", "{:d}", "{:05d}", "{:,}", "{:x}", "{:>8}", "{:+}", "{:t,}")),
    *(f"printf('{pattern}', n)" for pattern in ("%d", "%05d", "%x", "%+d", "%s", "%,d", "%o", "%c")),
    "n + 1::bigint", "n - 1::bigint", "n * 2::bigint", "n / 2", "n // 2", "n % 3", "-n::bigint", "abs(n::bigint)", "sign(n)", "n ** 2", "n & 3",
    "n | 3", "xor(n, 3)", "~n", "n << 1", "n >> 1", "bit_count(n)", "n::varchar", "n::double", "n::decimal(12, 2)", "n::boolean", "bin(n)", "hex(n)",
    "to_base(abs(n::bigint), 16)", "factorial(n)", "hash(n)", "n >> abs(n % 40)", "try_cast(n as timestamptz)", "gcd(n, 6)", "lcm(n::bigint, 6)", "factorial(5)", "greatest(n, 1)", "least(n, 1)", "n between 0 and 5", "chr(65)",
    "even(n)", "n = 1.0", "to_days(n % 100) = interval 1 day", "format_bytes(n)", "n::bigint::timestamp is null", "isfinite(n)",
    "n is distinct from 1", "n::utinyint", "mod(n, 4)", "fmod(n, 4)", "divide(n, 2)", "round(n, -1)", "ceil(n)", "floor(n)", "trunc(n)",
)  # fmt: skip
ON_DOUBLES = (
    *(f"{name}(f)" for name in ("round", "ceil", "ceiling", "floor", "trunc", "abs", "sign", "sqrt", "cbrt", "exp", "ln", "log", "log2", "log10",
                               "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "isnan", "isinf",
                               "isfinite", "even", "gamma", "cot", "signbit")),
    *(f"round(f, {n})" for n in (0, 1, 2, -1)),
    *(f"format('{pattern}', f)" for pattern in ("{}", "{:.2f}", "{:e}", "{:,.1f}", "{:g}")),
    *(f"printf('{pattern}', f)" for pattern in ("%.2f", "%e", "%g", "%8.3f", "%s")),
    "f::int", "f::bigint", "try_cast(f as int)", "f::decimal(18, 3)", "try_cast(f as decimal(5, 1))", "f::varchar", "f / 0", "f % 1.5", "f // 2",
    "f ** 2", "pow(f, 0.5)", "atan2(f, 1)", "greatest(f, 1)", "least(f, 'nan'::double)", "f = f", "f > 1e10", "nullif(f, 1.5)", "f is null",
    "log(2, f)", "f::float", "f::boolean", "nextafter(f, 1)", "hash(f) is null", "f in (1.5, 'nan'::double)", "f between 0 and 2",
)  # fmt: skip

# Values that differ, and why they stay so.
KNOWN = {
    "Unicode has two capitals of one letter": ("upper(s)",),
    "years after 9999 have a sign in Spark's patterns, too": (
        "date_format(t, 'yyyy')",
        "date_format(t, 'dd/MM/yyyy')",
        "date_format(t, 'yyyyMMdd')",
        "cast(t as string)",
        "date_format(t, 'EEE, d MMM yyyy hh:mm a')",
        "date_format(t, 'yyyyMMddHHmmss')",
        "extract(YEAROFWEEK from t)",
        "date_part('YEAROFWEEK', t)",
        "date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')",
    ),
    "the type of a column is not known: texts of a DOUBLE are written in another form by Spark": ("cast(f as string)",),
    "DuckDB rounds NaN to tens as 0": ("round(f, -1)",),
    "years after 9999 have a sign in Spark's texts": ("t::varchar", "t::date::varchar"),
    "bits of a negative number depend on its type": ("bit_count(n)",),
}
REASONS = {expression: why for why, expressions in KNOWN.items() for expression in expressions}


PATTERNS = (
    "yyyy", "yy", "y", "M", "MM", "MMM", "MMMM", "d", "dd", "D", "DDD", "E", "EEE", "EEEE", "H", "HH", "h", "hh", "K", "k", "m", "mm", "s",
    "ss", "S", "SSS", "SSSSSS", "a", "Q", "QQ", "q", "F", "L", "LLL", "G", "n", "'T'", "'it''s'", "''", "X", "Z", "z", "VV",
    "yyyy-MM-dd HH:mm:ss.SSS", "dd/MM/yyyy", "yyyyMMdd", "'Q'Q yyyy", "[yyyy]", "EEE, d MMM yyyy hh:mm a", "yyyyMMddHHmmss", "MM%dd",
)  # fmt: skip
SPARK_UNITS = (
    "YEAR",
    "YYYY",
    "YY",
    "QUARTER",
    "MONTH",
    "MM",
    "MON",
    "WEEK",
    "DAY",
    "DD",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "DECADE",
    "x",
)
SPARK_ON_TIMES = (
    *(f"date_format(t, {text!r})" for text in PATTERNS),
    *(f"date_trunc('{unit}', t)" for unit in SPARK_UNITS),
    *(f"trunc(t, '{unit}')" for unit in SPARK_UNITS),
    *(f"extract({part} from t)" for part in ("YEAR", "YEAROFWEEK", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "DAYOFWEEK", "DOW_ISO", "DOY", "HOUR", "MINUTE", "SECOND")),
    *(f"date_part('{part}', t)" for part in ("YEAR", "YEAROFWEEK", "WEEK", "DOW", "DAYOFWEEK_ISO", "DOY", "SECOND")),
    "year(t)", "quarter(t)", "month(t)", "weekofyear(t)", "day(t)", "dayofmonth(t)", "dayofweek(t)", "weekday(t)", "dayofyear(t)", "hour(t)",
    "minute(t)", "second(t)", "dayname(t)", "monthname(t)", "last_day(t)", "next_day(t, 'MO')", "next_day(t, 'Sunday')", "date_add(t, 1)",
    "date_sub(t, 31)", "add_months(t, 1)", "add_months(t, -12)", "datediff(t, date '2020-01-31')", "months_between(t, timestamp_ntz '2020-01-31 10:00:00')",
    "months_between(t, timestamp_ntz '2020-01-31 10:00:00', false)", "unix_timestamp(t)", "to_unix_timestamp(t)", "unix_date(to_date(t))", "unix_seconds(timestamp(t))",
    "unix_millis(timestamp(t))", "to_date(t)", "cast(t as date)", "cast(t as string)", "timestampdiff(MONTH, t, timestamp_ntz '2020-01-31 10:00:00')",
    "timestampdiff(WEEK, t, timestamp_ntz '2020-01-31 10:00:00')", "timestampdiff(DAY, t, timestamp_ntz '2020-01-31 10:00:00')",
    "timestampadd(MONTH, 1, t)", "t + interval 1 month", "t + interval '1 02:03:04' day to second", "t - interval 2 days", "make_date(year(t), 2, 3)",
    "date_from_unix_date(1)", "from_unixtime(86399, 'yyyy-MM-dd HH:mm')", "from_unixtime(0)", "to_timestamp('2024-03-05', 'yyyy-MM-dd')", "to_date('05/03/24', 'dd/MM/yy')",
    "to_date('2024 65', 'yyyy D')", "to_timestamp('x', 'yyyy')", "try_to_timestamp('x', 'yyyy')", "to_char(t, 'yyyy')", "date_format(cast(t as date), 'dd.MM.yy')",
)  # fmt: skip
SPARK_ON_STRINGS = (
    "length(s)", "sha2(s, length(s))", "to_binary(s)", "char_length(s)", "octet_length(s)", "bit_length(s)", "upper(s)", "lower(s)", "initcap(s)", "reverse(s)", "trim(s)", "ltrim(s)", "rtrim(s)",
    "trim(BOTH 'ab ' FROM s)", "ltrim('a', s)", "btrim(s, 'ab')", "ascii(s)", "base64(s)", "hex(s)", "md5(s)", "sha2(s, 256)", "sha1(s)", "crc32(s)", "soundex(s)",
    *(f"substring(s, {start}{length})" for start in (0, 1, 2, -1, -5, 9) for length in ("", ", 1", ", 0", ", 2", ", -1")),
    *(f"{name}(s, {n})" for name in ("left", "right") for n in (0, 1, -1, 10)),
    *(f"{name}(s, {n}, '{fill}')" for name in ("lpad", "rpad") for n in (0, 2, 5) for fill in ("x", "xy")),
    "lpad(s, 5)", "repeat(s, 2)", "repeat(s, -1)", "replace(s, 'b')", "replace(s, 'b', 'z')", "replace(s, '', 'z')", "translate(s, 'ab', 'x')", "instr(s, 'b')",
    "locate('b', s)", "locate('b', s, 2)", "locate('', s)", "locate('b', s, 0)", "chr(length(s) * 100)", "position('b' IN s)", "contains(s, 'b')", "startswith(s, 'a')", "endswith(s, 'c')", "overlay(s PLACING '_' FROM 2)",
    *(f"split(s, {text!r})" for text in (".", "b", "", "X|b", "\\.")), "split(s, 'b', 2)", "split(s, 'b', -1)",
    *(f"split_part(s, '.', {n})" for n in (1, 2, -1, 9)), "substring_index(s, '.', 1)", "substring_index(s, '.', -1)", "concat(s, '1')", "concat(s, null)", "concat_ws(',', s, null, 'z')",
    "s || 'x'", "levenshtein(s, 'abd')", "levenshtein(s, 'abd', 1)", "regexp_extract(s, '(a)(b)?')", "regexp_extract(s, '(a)(b)?', 0)", "regexp_extract(s, '(a)(b)?', 2)",
    "regexp_extract_all(s, '([a-c])')", "regexp_extract_all(s, '[a-c]', 0)", "regexp_replace(s, '(a|B)', '[$1]')", "regexp_replace(s, 'b', '\\\\$')", "regexp_replace(s, 'b', '-', 2)",
    "regexp_count(s, '[a-c]')", "regexp_count(s, '')", "s || 1.5D", "regexp_instr(s, 'b')", "regexp_substr(s, 'b.')", "regexp_like(s, 'b')", "s rlike '^a'", "s rlike '(?i)A'", "s like 'a%'", "s like '%\\\\%'", "s like '\\_%'",
    "s like 'a!%' escape '!'", "s ilike 'A%'", "s not like 'a%'", "s like any ('a%', 'A%')", "format_string('%s|%5s', s, s)", "printf('%s', s)", "cast(s as int)", "try_cast(s as int)",
    "try_cast(s as double)", "try_cast(s as boolean)", "try_cast(s as date)", "nullif(s, '')", "nvl(s, 'x')", "nvl2(s, 1, 2)", "ifnull(s, 'x')", "coalesce(s, 'x')", "if(s = '', 1, 2)", "s = 'abc'", "s <=> null",
    "decode(s, 'abc', 1, 2)", "find_in_set('a', s)", "elt(1, s)", "greatest(s, 'b')", "least(s, 'b')", "char(97)", "space(2)", "unhex('4D')", "encode(s, 'utf-8')", "sentences(s)", "mask(s)", "luhn_check(s)",
    "url_encode(s)", "is_valid_utf8(s)", "to_number('12', '99')", "get_json_object('{\"a\": 1}', '$.a')", "array_join(split(s, 'b'), '-')", "size(split(s, 'b'))", "element_at(split(s, 'b'), 1)",
)  # fmt: skip
SPARK_ON_NUMBERS = (
    "n + 1L", "n * 2L", "n / 2", "n div 2", "n % 3", "mod(n, 3)", "pmod(n, 3)", "-cast(n as bigint)", "abs(cast(n as bigint))", "sign(n)", "signum(n)", "power(n, 2)", "n & 3", "n | 3", "n ^ 3", "~n",
    "shiftleft(n, 1)", "shiftright(n, 1)", "shiftrightunsigned(n, 1)", "bit_count(n)", "cast(n as string)", "cast(n as double)", "cast(n as decimal(12, 2))", "cast(n as boolean)", "cast(n as tinyint)", "bin(n)", "hex(n)",
    "conv('ff', 16, 10)", "factorial(5)", "greatest(n, 1)", "least(n, 1)", "greatest(n, null)", "n between 0 and 5", "char(65)", "format_number(n, 2)", "format_string('%05d', n)", "to_char(n, '999')", "round(n, -1)", "bround(n, -1)",
    "ceil(n)", "floor(n)", "n <=> 1", "isnull(n)", "isnotnull(n)", "n in (1, 7)", "case n when 1 then 'a' else 'b' end", "width_bucket(n, 0, 10, 5)", "sequence(1, 3)", "array(n, 1)", "array_contains(array(n, 1), 1)", "n = 1.0", "nanvl(n, 1)",
)  # fmt: skip
SPARK_ON_DOUBLES = (
    *(f"{name}(f)" for name in ("round", "bround", "ceil", "ceiling", "floor", "abs", "sign", "sqrt", "cbrt", "exp", "expm1", "ln", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos",
                               "atan", "sinh", "cosh", "tanh", "degrees", "radians", "isnan", "rint", "cot", "hex", "negative", "positive")),
    *(f"round(f, {n})" for n in (0, 1, 2, -1)), "cast(f as int)", "cast(f as bigint)", "try_cast(f as int)", "cast(f as decimal(18, 3))", "cast(f as string)", "f / 0", "f % 1.5", "f div 2", "power(f, 0.5)", "atan2(f, 1)",
    "greatest(f, 1)", "least(f, double('nan'))", "f = f", "f > 1e10", "nullif(f, 1.5)", "nanvl(f, 1)", "log(2, f)", "cast(f as float)", "cast(f as boolean)", "f in (1.5, double('nan'))", "f between 0 and 2", "format_number(f, 2)",
    "format_string('%.2f', f)", "f <=> double('nan')", "try_divide(f, 0)", "hypot(f, 1)", "ceil(f, 1)", "floor(f, 1)",
)  # fmt: skip

WHOLE_NUMBERS = tuple(
    f"{cast}({{}} as {kind})" for cast in ("cast", "try_cast") for kind in ("tinyint", "smallint", "int", "bigint")
)
SPARK_ON_LISTS = (
    *(f"array_{name}(l, {value})" for name in ("contains", "position", "remove", "append", "prepend") for value in (5, "null", 1)),
    *(f"array_{name}(l, array(1, null, 9))" for name in ("intersect", "union", "except")),
    *(f"{name}(l)" for name in ("array_distinct", "array_max", "array_min", "array_sort", "sort_array", "reverse", "array_compact", "size", "array_size")),
    "sort_array(l, false)", "array_join(l, '-')", "array_join(l, '-', '?')", "flatten(array(l, array(7)))", "flatten(array(l, null))", "concat(l, array(1))",
    "slice(l, 1, 2)", "slice(l, -1, 1)", "arrays_overlap(l, array(1, null))", "arrays_zip(l, l)", "array_insert(l, 5, 9)", "array_repeat(l, 2)", "l[0]", "l[size(l) - 1]",
    "element_at(l, 1)", "element_at(l, -1)", "try_element_at(l, 2)", "transform(l, v -> v + 1)", "transform(l, (v, i) -> v + i)", "filter(l, v -> v > 1)", "filter(l, (v, i) -> i > 0)",
    "transform(l, (v, i) -> l[i])", "exists(l, v -> v > 1)", "forall(l, v -> v > 0)", "aggregate(l, 0, (acc, v) -> acc + coalesce(v, 0))", "concat_ws('-', l, 'x')",
    "to_json(l)", "cast(l as string)", "typeof(l)", "hash(l)", "sequence(1, coalesce(size(l), 0))", "sequence(3, size(l))", "map_concat(map(1, 2), if(size(l) > 0, map(5, l[0]), null))", "map(0, 'a', 1, 'b')[0]",
)  # fmt: skip
SPARK_ON_DECIMALS = (
    "m div 2", "m div 0.3", "ceil(m)", "floor(m)", "round(m, 1)", "cast(m as string)", "cast(m as decimal(10, 1))", "m + 1", "m * 2", "m % 3", "abs(m)", "sign(m)", "cast(m as double)", "m = 2.5",
    "cast(m / 2 as int)", "cast(m * 1.5 as bigint)", "int(m)", "cast(cast(m as double) as int)", "cast(cast(m as float) as bigint)", "m / 0", "m % 0", "greatest(m, 2)",
)  # fmt: skip
SPARK_ON_INSTANTS = (
    *(f"{name}(t, '{zone}')" for name in ("from_utc_timestamp", "to_utc_timestamp") for zone in ("Europe/Berlin", "Asia/Kolkata", "UTC")),
    "cast(t as string)", "cast(t as date)", "add_months(t, 1)", "unix_seconds(t)", "unix_micros(t)", "date_trunc('hour', t)", "t + interval 1 day", "datediff(day, t, timestamp '2020-01-01 00:00:00')",
    "datediff(t, date '2020-01-01')", "timestampdiff(day, t, timestamp '2020-01-01 00:00:00')", "hour(t)", "date_format(t, 'yyyy-MM-dd HH:mm')", "cast(t as date) - date '2020-01-01'",
)  # fmt: skip
DIGITS = ("'1'", "' 7 '", "'-3'", "'+4'", "'1.9'", "'1e3'", "'x'", "''", "'1_0'", "'9999999999'", "null::varchar")
SMALL = (*HALVES, "99.99", "1e6", *NO_NUMBERS)

FAILS = "an error"


@dataclass(frozen=True)
class Table:
    """Edge values of one column."""

    column: str
    values: Sequence[str]
    expressions: Sequence[str]

    @property
    def sql(self) -> str:
        rows = ", ".join(f"({i}, {value})" for i, value in enumerate(self.values))
        return f"(VALUES {rows}) AS v(id, {self.column})"


def formats() -> list[str]:
    """Each code alone, and random sequences of codes and texts: 150 of them by the seed, in a soak 3,000."""
    choose = random.Random(seed())
    mixed = [
        "".join(choose.choice(CODES) + choose.choice(TEXTS) for _ in range(choose.randint(1, 5)))
        for _ in range(3000 if everything() else 150)
    ]
    return [*CODES, *(f"{text}{code}{text}" for code, text in itertools.product(CODES[:10], TEXTS)), *mixed]


LISTS = ("[3, 1, 2]", "[5, null, 5]", "[1, 1]", "[]::int[]", "[null]::int[]", "null::int[]")
DECIMALS = ("1.90", "-1.90", "2.50", "-0.05", "99.99", "null::decimal(4, 2)")
INSTANTS = [
    f"timestamptz '{each}+00'" for each in ("2020-02-29 12:00:00", "1969-12-31 23:59:59.999999", "2024-03-31 01:30:00")
] + ["null::timestamptz"]
ON_LISTS = (
    "list_transform(l, lambda v, i: v + i)", "list_filter(l, lambda v, i: i > 1)", "list_transform(l, lambda v, i: i + len(list_filter(l, lambda i: i > 1)))",
    "list_transform(l, lambda v, i: list_transform([v], lambda w, j: j + i))", "to_json({'a': l, 'b': null})", "to_json(l)", "l::varchar", "typeof(l)",
    "list_contains(l, 5)", "list_contains(l, 9)", "list_contains(l, null)", "5 in l", "list_position(l, 5)", "array_position(l, null)", "list_indexof(l, 9)",
    "list_sort(list_distinct(l))", "list_unique(l)", "list_sort(list_intersect(l, [1, 5, null]))", "list_has_any(l, [1, null])", "l && [5]", "list_has_all(l, [1, null])",
    "l @> [1]", "[5] <@ l", "list_slice(l, 2, 3)", "array_slice(l, 2, 2)", "l::varchar[]", "list_transform(l, lambda v: v / 2)::int[]", "list_reverse_sort(l)", "concat_ws(',', l)",
    "map_concat(map {'k': 1}, case when len(l) > 0 then map {'z': l[1]} end)", "len(l)::varchar", "epoch(date '2020-01-01' + len(l)::int)",
)  # fmt: skip
ON_DECIMALS = (
    "m // 2",
    "2 // m",
    "m::varchar",
    "m::int::varchar",
    "m::varchar::decimal(4, 1)",
    "m::double::int",
    "(m::int + 1)::varchar::int",
)
ON_INSTANTS = (
    "t::varchar", "t::date::varchar", "t at time zone 'Europe/Berlin'", "(t at time zone 'UTC')::varchar", "epoch(t)", "t::timestamp::varchar",
    "t::timestamp at time zone 'Europe/Berlin'", "t::date at time zone 'America/New_York'", "epoch(t::timestamp)",
)  # fmt: skip
DIGITS_OF_DUCKDB = (
    "'1'",
    "' 7 '",
    "'+5'",
    "'-0'",
    "'1.9'",
    "'-2.5'",
    "'0.5'",
    "'abc'",
    "''",
    "'1e2'",
    "'12a'",
    "'99.4'",
    "null::varchar",
)


NEAR_HALVES = (
    "1.005::double",
    "2.675::double",
    "-0.285::double",
    "0.125::double",
    "1000::double",
    "1e10",
    "1e-7",
    *NO_NUMBERS,
)
ON_NEAR_HALVES = (
    "round(f, 1)", "round(f, 2)", "round(f::float, 2)", "round(f, 0)", "f || 'x'", "concat(f, 'x')", "concat_ws('-', f, 1)", "[f]::varchar[]", "[f]::int[]",
    "log10(abs(f))", "log2(abs(f))", "to_json({'f': f})", "json_object('f', f)",
)  # fmt: skip
JSON_TEXTS = (
    """'{"a": "x", "b": [1, null, "y"], "c": {"d": 1.50}}'""", """'{"a": null}'""", "'[1, 2.0]'", "'null'", "'1e3'", "'{}'", "'x'", "null::varchar",
)  # fmt: skip
ON_JSON = (
    *(f"j {arrow} '{path}'" for arrow in ("->", "->>") for path in ("$.a", "a", "$.b", "$.b[2]", "$.c.d", "$[0]", "$.*", "/a", "$")),
    "json_array_length(j)", "json_extract(j, '$.b[0]')", "json_extract_string(j, '$.c')", "json_valid(j)", "j::json", "try_cast(j as json)", "json_type(j)",
    "list_contains(['x'], j->>'a')", "to_json(j)", "to_json([j])", "from_json(j, '[\"INT\"]')",
)  # fmt: skip
PATTERN_TEXTS = (
    "'abc'",
    "'abc' || chr(10)",
    "'É'",
    "'a' || chr(13) || 'c'",
    "'a[:]'",
    "chr(160) || 'abc' || chr(8195)",
    "'e' || chr(769)",
    "null::varchar",
)
REGEXES = ("c$", "^a.c", "[[:alpha:]]+", "[a[]", "é", "(?i)é", "[^[:space:]]", "$", "a.", "[&&a]", "(?P<x>b)")
ON_PATTERN_TEXTS = (
    *(f"regexp_{name}(s, '{pattern}')" for name in ("matches", "full_match", "extract") for pattern in REGEXES),
    *(f"regexp_replace(s, '{pattern}', '_', 'gi')" for pattern in REGEXES), *(f"string_split_regex(s, '{pattern}')" for pattern in ("c$", "[[:alpha:]]", "x*")),
    "trim(s)", "ltrim(s)", "rtrim(s)", "reverse(s)", "bin(s)", "s similar to 'a.c'", "regexp_matches(s, 'É', 'i')",
)  # fmt: skip
CAST_TEXTS = (
    "'2020'",
    "'2020-01'",
    "'2020-01-05'",
    "'é'",
    "'a\\x41'",
    "'6BB7F9A0-0000-4000-8000-000000000001'",
    "'{}'",
    "null::varchar",
)
ON_CAST_TEXTS = (
    *(f"try_cast(s as {kind})" for kind in ("date", "timestamp", "timestamptz", "uuid", "json", "blob", "utinyint", "ubigint", "bit")),
    "s::uuid", "s::blob", "s::json",
)  # fmt: skip
BYTES = (
    *(form.format(text) for text in ("\\xAA\\x00", "\\x41b\\x5C", "a b", "", "\n") for form in (
        "'{}'::blob", "try_cast('{}' as blob)", "cast('{}' as bytea)", "('{}')::varbinary", "blob '{}'", "hex('{}'::blob)", "['{}', 'b', null]::blob[]",
    )),
    r"s = '\xff'::blob", r"s in ('\xFF'::blob, 'b'::blob)", r"coalesce(null, '\xFF'::blob)", "try_cast('é' as blob)", r"try_cast('\q' as blob)",
)  # fmt: skip
BYTES_OF_SPARK = (
    "X'AA00'", "X'A'", "X''", "cast('\\\\xAA' as binary)", "cast('é' as binary)", "try_cast('é' as binary)", "binary('\\\\q')", "cast(s as binary)",
    "cast(upper(cast(s as string)) as binary)", "hex(cast('é' as binary))", "s = X'61'",
)  # fmt: skip


TABLES = {
    "near halves": Table("f", NEAR_HALVES, ON_NEAR_HALVES),
    "JSON": Table("j", JSON_TEXTS, ON_JSON),
    "patterns": Table("s", PATTERN_TEXTS, ON_PATTERN_TEXTS),
    "texts that are cast": Table("s", CAST_TEXTS, ON_CAST_TEXTS),
    "times": Table("t", TIMES, ON_TIMES),
    "strings": Table("s", STRINGS, ON_STRINGS),
    "numbers": Table("n", NUMBERS, ON_NUMBERS),
    "doubles": Table("f", DOUBLES, ON_DOUBLES),
    "digits": Table("s", DIGITS_OF_DUCKDB, [each.format("s") for each in WHOLE_NUMBERS]),
    "small doubles": Table("f", SMALL, ["f::varchar", *(each.format("f") for each in WHOLE_NUMBERS)]),
    "decimals": Table("m", DECIMALS, [*ON_DECIMALS, *(each.format("m") for each in WHOLE_NUMBERS)]),
    "lists": Table("l", LISTS, ON_LISTS),
    "instants": Table("t", INSTANTS, ON_INSTANTS),
    "codes": Table("n", ("65", "233", "256", "8364", "null::int"), ["chr(n)", "chr(n + 1)"]),
}


TABLES_OF_SPARK = {
    "times": Table("t", TIMES, SPARK_ON_TIMES),
    "strings": Table("s", [value for value in STRINGS if "\\" not in value], SPARK_ON_STRINGS),
    "numbers": Table("n", NUMBERS, SPARK_ON_NUMBERS),
    "doubles": Table("f", DOUBLES, SPARK_ON_DOUBLES),
    "digits": Table("s", DIGITS, [each.format("s") for each in WHOLE_NUMBERS]),
    "near halves": Table("f", NEAR_HALVES, ("round(f, 1)", "round(f, 2)", "round(cast(f as float), 2)", "bround(f, 2)", "concat(f, 'x')", "f || 'x'", "concat_ws('-', f)", "array_join(array(f), '-')", "bin(f)", "hex(f)")),
    "small doubles": Table("f", SMALL, ["cast(f as string)", *(each.format("if(abs(f) < 100, f, 0)") for each in WHOLE_NUMBERS)]),
    "lists": Table("l", LISTS, SPARK_ON_LISTS),
    "decimals": Table("m", DECIMALS, [*SPARK_ON_DECIMALS, *(each.format("m") for each in WHOLE_NUMBERS)]),
    "instants": Table("t", INSTANTS, SPARK_ON_INSTANTS),
    "bytes": Table("s", ("'a'::blob", r"'\xC3\xA9'::blob", "null::blob"), BYTES_OF_SPARK),
}  # fmt: skip
OVER_ROWS = (
    "collect_list(v), collect_set(v), sum(v), count(v) from r where k = 'none'",
    "k, sort_array(collect_list(v)), sort_array(collect_set(v)) from r group by k",
    "k, collect_list(v) filter (where v > 99) from r group by k",
    "id, sort_array(collect_list(v) over (partition by k order by id rows between 1 preceding and 1 preceding)) from r",
    "percentile(v, 0.5), percentile(d, 0.25), percentile_cont(0.5) within group (order by v), median(v) from r",
    "percentile(d, array(0.25, 0.5)) from r",
    "approx_percentile(id, 0.5), percentile_approx(id, 0.3), approx_percentile(id, 1.0), approx_percentile(id, 0.0) from r",
    "approx_percentile(id, array(0.1, 0.21, 0.5, 0.8, 0.9)) from r",
    "skewness(v) from r",
    "kurtosis(v) from r",
    "max_by(k, id), min_by(v, id), max_by(v, d), min_by(id, d) from r",
    "m.v, m.id, n.v, n.id, o.x, o.k from (select max(struct(v, id)) as m, min(struct(v, id)) as n, max(struct(v as x, k)) as o from r)",
    "k, m.v, m.id from (select k, max(struct(v, id)) as m from r group by k)",
    "listagg(k) within group (order by id), listagg(k, ',') within group (order by id) from r",
    "r.id, e from r lateral view outer explode(l) x as e",
    "r.id, e from r lateral view explode(l) x as e",
    "r.id, a, b from r lateral view explode(map('x', v, 'y', id)) e as a, b",
    "explode(map('x', 1)) from r",
    "id, exists(l, e -> e > 1), forall(l, e -> e > 1), exists(l, e -> e > 9), forall(l, e -> e > 0) from r",
    "concat(k, cast(d as double)), k || id / 3 from r",
    "k || id / 1e9 from r",
    "concat_ws('-', k, cast(d as double)), concat(l, l), hex(cast(d as double) * 10), bin(d), bin('12') from r",
    "avg(timestamp '2020-01-01 00:00:00') from r",
    "avg(d), avg(distinct v), avg(id) filter (where v > 0) from r",
    "* from (select k, v, id % 2 as n from r) pivot (count(v) for n in (0, 1))",
    "* from (select k, v, id % 2 as n from r) pivot (sum(v) for n in (0, 1))",
    "v / id, count(*) from r group by v / id",
    "v / (id - 1) from r",
    "v / id as q, q * 2 as twice, cast(d as int) as whole, whole + 1 from r",
    "v % (id - 1) from r where id > 1",
    "explode(sequence(date '2020-01-31', date '2020-05-31', interval 1 month))",
    "explode(sequence(3, 1))",
)


AGGREGATES = (
    "arg_max(v, id)", "arg_min(v, -id)", "max_by(k, d)", "count_if(v > 0)", "count_if(null)", "corr(v, id)", "regr_slope(id, v)", "avg(d::double)", "mean(v)",
    "quantile(v, 0.5)", "quantile_disc(id, 0.3)", "quantile(d, [0.25, 0.75])", "percentile_disc(0.4) within group (order by id)",
    "percentile_cont(0.25) within group (order by v desc)", "percentile_cont(0) within group (order by v desc)", "string_agg(d::double, ',' order by id)",
    "string_agg(distinct k, '-' order by k)", "list(v order by id)", "median(v)", "avg(timestamptz '2020-01-01')", "list_sort(list(distinct v))", "sum(v)", "skewness(v)",
)  # fmt: skip
ROWS_OF_DUCKDB = "(values (1, 'a', 7, 1.5::decimal(4, 2)), (2, 'a', null, 2.25), (3, null, -3, null), (4, 'b', 7, -0.5), (5, 'b', 0, 0.5), (6, 'c', null, null)) as r(id, k, v, d)"


@pytest.mark.parametrize(
    "form",
    ["{} from r", "k, {} from r group by k", "{} filter (where v > 99) from r", "id, {} over (partition by k) from r"],
)
def test_an_aggregate_gives_the_values_of_duckdb_or_is_refused(
    plain: duckdb.DuckDBPyConnection, spark: Any, form: str
) -> None:
    different = {}
    for aggregate in AGGREGATES:
        query = f"select {form.format(aggregate).replace('from r', f'from {ROWS_OF_DUCKDB}')}"
        try:
            translated = on_spark(query)
            expected = _as_texts(plain.execute(query).fetchall())
            rows = _as_texts(spark.sql(translated).collect())
        except (DuckrunError, duckdb.Error):
            continue
        except Exception as error:  # of Spark: it has no such function, or a row without a value
            assert str(error)
            continue
        if rows != expected:
            different[aggregate] = (expected, rows, translated)
    assert not different


@pytest.mark.parametrize("query", OVER_ROWS)
def test_a_query_of_spark_gives_its_rows_in_duckdb_or_is_refused(
    plain: duckdb.DuckDBPyConnection, spark: Any, query: str
) -> None:
    source = (
        "with r as (select * from (values (1, 'a', 7, 1.5::decimal(4, 2), [1, 2]), (2, 'a', null, 2.25, []::int[]), "
        "(3, null, -3, null, null), (4, 'b', 7, -0.5, [null]), (5, 'b', 0, 0.5, [4])) r(id, k, v, d, l))"
    )
    there = on_spark(f"{source} select * from r", whole=False)
    spark.sql(there).createOrReplaceTempView("r")
    try:
        translated = text_in(tree_in(f"select {query}", "spark"), "duckdb")
        rows = plain.execute(f"{source} {translated}").fetchall()
    except (DuckrunError, duckdb.Error) as error:
        assert str(error)
        return
    expected = spark.sql(f"select {query}").collect()
    assert _as_texts(rows) == _as_texts(expected), translated


def _as_texts(rows: Sequence[Any]) -> list[str]:
    return sorted("|".join(map(_plain, row)) for row in rows)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def test_strftime_gives_the_same_text_for_each_format_and_date(plain: duckdb.DuckDBPyConnection, spark: Any) -> None:
    choose = random.Random(seed())
    days = [date(1, 1, 1) + timedelta(days=choose.randrange(3_600_000)) for _ in range(200)]
    table = Table("t", [*TIMES, *(f"timestamp '{day} 13:04:05.67'" for day in days)], [])
    compare(plain, spark, table, [f"strftime(t, '{each}')" for each in formats()], all_of_them=True)


@pytest.mark.parametrize("code", ["%z", "%Z", "%n"])
def test_a_code_of_strftime_without_a_translation_is_refused_by_name(code: str) -> None:
    with pytest.raises(DuckrunError, match=code):
        on_spark(f"strftime(t, '{code}')")


@pytest.mark.parametrize("function", ["strptime", "try_strptime"])
def test_texts_that_are_no_time_are_so_on_both(plain: duckdb.DuckDBPyConnection, spark: Any, function: str) -> None:
    for time_format, texts in PARSED:
        for text in texts if function == "strptime" else [texts]:
            values = [f"'{each}'" for each in ([text] if isinstance(text, str) else text)]
            compare(plain, spark, Table("s", values, []), [f"{function}(s, '{time_format}')"], all_of_them=True)


def test_a_literal_of_bytes_has_those_of_duckdb(plain: duckdb.DuckDBPyConnection, spark: Any) -> None:
    compare(plain, spark, Table("s", [r"'\xFF'::blob", "'a'::blob", "null::blob"], []), BYTES, all_of_them=True)


@pytest.mark.parametrize("text", ["é", r"\q", r"\xA", r"\XAA", "a\\"])
def test_a_text_of_no_bytes_is_an_error_on_both(plain: duckdb.DuckDBPyConnection, spark: Any, text: str) -> None:
    with pytest.raises(duckdb.ConversionException):
        plain.execute(f"select '{text}'::blob")
    with pytest.raises(Exception, match="no bytes: "):
        spark.sql(on_spark(f"select '{text}'::blob")).collect()


def test_a_text_is_parsed_by_the_first_format_that_fits(plain: duckdb.DuckDBPyConnection, spark: Any) -> None:
    table = Table("s", ["'2024-03-05'", "'05.03.2024'", "'5 Mar'", "'soon'", "null::varchar"], [])
    compare(plain, spark, table, ["try_strptime(s, ['%Y-%m-%d', '%d.%m.%Y', '%d %b'])"], all_of_them=True)


@pytest.mark.parametrize("name", TABLES)
def test_a_function_gives_the_values_of_duckdb_or_is_refused(
    plain: duckdb.DuckDBPyConnection, spark: Any, name: str
) -> None:
    compare(plain, spark, TABLES[name], TABLES[name].expressions)


@pytest.mark.parametrize("name", TABLES_OF_SPARK)
def test_a_function_of_spark_gives_its_values_in_duckdb_or_is_refused(
    plain: duckdb.DuckDBPyConnection, spark: Any, name: str
) -> None:
    table = TABLES_OF_SPARK[name]
    accepted = dict(_translated(table.expressions, "spark", "duckdb"))
    by_spark = dict(_by_spark(spark, on_spark(f"from {table.sql}", whole=True), {each: each for each in accepted}))
    expected = {each: values for each, values in by_spark.items() if values is not None}
    results = {each: _by_duckdb(plain, table, accepted[each]) for each in expected}
    refuse_differences(table, expected, results, accepted, fails=FAILS)


def compare(
    plain: duckdb.DuckDBPyConnection, spark: Any, table: Table, expressions: Sequence[str], *, all_of_them: bool = False
) -> None:
    """Compare each expression of DuckDB's over a table on both engines; ``all_of_them``: none may be refused, or fail."""
    accepted = dict(_translated(expressions, "duckdb", "spark"))
    assert not (all_of_them and len(accepted) < len(set(expressions))), set(expressions) - set(accepted)
    expected = {expression: _by_duckdb(plain, table, expression) for expression in accepted}
    guarded = {each: _where_duckdb_has_a_value(text, expected[each]) for each, text in accepted.items()}
    by_spark = dict(_by_spark(spark, on_spark(f"from {table.sql}", whole=True), guarded))
    failed = [each for each, values in by_spark.items() if values is None and set(expected[each]) != {FAILS}]
    assert not (all_of_them and failed), f"Spark fails for {failed}"
    results = {each: values for each, values in by_spark.items() if values is not None}
    refuse_differences(table, {each: expected[each] for each in results}, results, accepted)


def refuse_differences(
    table: Table,
    expected: dict[str, list[str]],
    results: dict[str, list[str]],
    translations: dict[str, str],
    fails: str | None = None,
) -> None:
    """Fail for the first value of each expression that is neither the expected one nor ``fails``."""
    different = {}
    for expression, values in expected.items():
        cells = zip(table.values, values, results[expression], strict=True)
        first = next((cell for cell in cells if cell[1] != cell[2] and cell[1] != FAILS and fails != cell[2]), None)
        if first is not None and expression not in REASONS:
            different[expression] = first
    shown = "\n".join(
        f"{expression} of {value}: wanted {wanted}, is {got}: {translations[expression]}"
        for expression, (value, wanted, got) in different.items()
    )
    assert not different, f"{len(different)} of {len(expected)} differ:\n{shown}"


def _translated(expressions: Sequence[str], dialect: str, to: str) -> Iterator[tuple[str, str]]:
    """The expressions that are not refused, each with its translation."""
    for expression in expressions:
        with contextlib.suppress(DuckrunError):
            yield expression, text_in(tree_in(expression, dialect), to)


def on_spark(text: str, whole: bool = False) -> str:
    return text_in(tree_in(f"select * {text}" if whole else text, "duckdb"), "spark")


def _by_duckdb(plain: duckdb.DuckDBPyConnection, table: Table, expression: str) -> list[str]:
    """The value of an expression for each row; ``FAILS`` where DuckDB raises an error."""
    try:
        return [_plain(row[0]) for row in plain.execute(f"SELECT {expression} FROM {table.sql} ORDER BY id").fetchall()]
    except duckdb.Error:
        if len(table.values) == 1:
            return [FAILS]
        rows = (Table(table.column, [value], []) for value in table.values)
        return [cell for row in rows for cell in _by_duckdb(plain, row, expression)]


def _where_duckdb_has_a_value(text: str, values: Sequence[str]) -> str:
    """An expression that is not computed for rows for which DuckDB fails, unless it fails for all of them."""
    failing = [str(i) for i, value in enumerate(values) if value == FAILS]
    return f"if(id in ({', '.join(failing)}), null, {text})" if 0 < len(failing) < len(values) else text


def _by_spark(spark: Any, source: str, texts: dict[str, str]) -> Iterator[tuple[str, list[str] | None]]:
    """The values of each expression; None for one that fails. All run in one query, halved until it does not fail."""
    if not texts:
        return
    columns = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts.values()))
    try:
        rows = spark.sql(f"SELECT id, {columns} FROM ({source})").collect()
    except Exception:  # of whichever kind: which expression it was is found by halves
        if len(texts) == 1:
            yield next(iter(texts)), None
            return
        half = len(texts) // 2
        for part in (list(texts.items())[:half], list(texts.items())[half:]):
            yield from _by_spark(spark, source, dict(part))
        return
    rows.sort(key=lambda row: row[0])
    for i, expression in enumerate(texts):
        yield expression, [_plain(row[i + 1]) for row in rows]


def _plain(value: Any) -> str:
    """A value as both engines have it: 0 has no sign, a date is the time at its midnight, a UUID a text."""
    if isinstance(value, UUID):
        value = str(value)
    if isinstance(value, float):
        value += 0.0
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return plain_value(value)
