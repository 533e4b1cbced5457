"""The four answers, as one query over weighed rows: what sums to zero is equal before and after, what is left is compared by identity.

The query is DuckDB's SQL; an engine of another dialect has it translated. Source: docs/changes.md, Definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duckrun.errors import InvalidConfig
from duckrun.sql.names import fresh_name, quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.changes import CHANGE_TYPE, ChangeKind

COMMIT_VERSION, COMMIT_TIMESTAMP, PAIR = "_commit_version", "_commit_timestamp", "_pair"


def added_columns(kind: ChangeKind, *, commit_version: bool = False) -> tuple[str, ...]:
    """The columns that an answer has beside those of the table."""
    if kind == "feed":
        return CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP
    if kind == "full_delta":
        return CHANGE_TYPE, PAIR, COMMIT_VERSION, COMMIT_TIMESTAMP
    found = () if kind == "append_only" else (CHANGE_TYPE,)
    return (*found, COMMIT_VERSION) if commit_version else found


@dataclass(frozen=True)
class Question:
    """What is asked: of ``columns`` (each with the name of its one spelling, if it has one) of the rows that ``predicate`` (DuckDB's
    SQL) is true for. ``identity`` are the columns by which rows are the same, empty for none; ``weight``, ``step`` and ``fed`` are the
    names of the weighed rows' own columns, ``times`` the time of each step, in milliseconds since 1970.
    """

    table: str
    kind: ChangeKind
    columns: Mapping[str, str | None]
    identity: Sequence[str]
    weight: str
    step: str
    fed: str | None = None
    predicate: str | None = None
    commit_version: bool = False
    times: Mapping[int, int | None] | None = None
    from_nothing: bool = False
    """Whether the range begins before the first version: each row came, and there is none to compare it with."""

    @property
    def by_step(self) -> bool:
        """Whether the steps are told apart, and not summed up."""
        return self.kind == "full_delta" or self.commit_version


def answer(question: Question, rows: str) -> str:
    """The query of an answer; ``rows`` is SQL behind FROM."""
    return _Answer(question, rows).text()


class _Answer:
    def __init__(self, question: Question, rows: str) -> None:
        self._asked, self._rows = question, f"{rows} AS weighed"
        taken = [*question.columns, *question.identity, *(s for s in question.columns.values() if s)]
        self._n, self._plus, self._minus, self._side, self._last, self._copy = (
            fresh_name(f"__duckrun_{name}", taken) for name in ("n", "plus", "minus", "side", "last", "copy")
        )
        self._step = quote_identifier(question.step)
        hidden = [name for name in question.identity if name not in question.columns]
        self._keys = [quote_identifier(name) for name in question.identity]
        self._hidden = [quote_identifier(name) for name in hidden]
        self._names = [quote_identifier(name) for name in question.columns]
        # Of a pair, the columns that are not the identity itself.
        self._compared = [name for name in self._names if name not in self._keys]

    def text(self) -> str:
        asked = self._asked
        if asked.fed is not None:
            return self._as_they_are(quote_identifier(asked.fed))
        if asked.from_nothing:
            return self._all()
        ctes = [f"changed AS ({self._difference()})"]
        if asked.commit_version:
            ctes = [f"stepped AS ({self._difference()})", f"changed AS ({self._summed()})"]
        if not self._keys:
            final = self._copies()
        else:
            ctes += [f"compared AS ({self._paired('changed', self._by)})", f"repeated AS ({self._repeated()})"]
            if asked.commit_version:
                ctes.append(f"came AS ({self._came()})")
            final = self._by_identity()
        return f"WITH {', '.join(ctes)} {final}"

    @property
    def _by(self) -> list[str]:
        """The step, where the answer tells steps apart."""
        return [self._step] if self._asked.kind == "full_delta" else []

    def _as_they_are(self, fed: str) -> str:
        """The rows of the feed, and for commits without one those of the files that came or went; nothing is compared."""
        kind = f"coalesce({fed}, CASE WHEN {quote_identifier(self._asked.weight)} > 0 THEN 'insert' ELSE 'delete' END)"
        columns = [*(f"{name} AS {name}" for name in self._names), f"{kind} AS {CHANGE_TYPE}"]
        return self._in_versions(columns, self._rows, "true", None)

    def _all(self) -> str:
        """Every row, as an insert. Of its keys alone it is asked whether they are those of several."""
        asked = self._asked
        where = "" if asked.predicate is None else f" WHERE ({asked.predicate})"
        told = "" if asked.kind == "append_only" else f", 'insert' AS {CHANGE_TYPE}"
        if not self._keys or self._hidden:  # row ids are unique
            return f"SELECT {', '.join(self._names)}{told} FROM {self._rows}{where}"
        keys = ", ".join(self._keys)
        counted = f"SELECT {keys}, count(*) AS {self._plus}, 0 AS {self._minus} FROM {self._rows}{where} GROUP BY {keys} HAVING count(*) > 1"
        kept = f"(SELECT {', '.join(self._names)} FROM {self._rows}{where}) AS kept"
        columns = ", ".join(f"kept.{name} AS {name}" for name in self._names)
        return (
            f"WITH compared AS ({counted}), repeated AS ({self._repeated()}) "
            f"SELECT {columns}{told} FROM {kept} CROSS JOIN repeated WHERE {self._checked()}"
        )

    # -- the multiset difference

    def _difference(self) -> str:
        """Each row that does not sum to zero, with how often it came (above zero) or went; by steps, where they are told apart."""
        asked = self._asked
        by = [self._step] if asked.by_step else []
        where = "" if asked.predicate is None else f" WHERE ({asked.predicate})"
        return self._sum_of(f"{self._rows}{where}", quote_identifier(asked.weight), by)

    def _summed(self) -> str:
        """The same over all steps."""
        return self._sum_of("stepped", self._n, [])

    def _sum_of(self, source: str, weight: str, by: Sequence[str]) -> str:
        spelled = {
            quote_identifier(name): same and quote_identifier(same) for name, same in self._asked.columns.items()
        }
        columns = [f"first({name}) AS {name}" if same else name for name, same in spelled.items()]
        same = [each for each in spelled.values() if each] if self._asked.commit_version else []
        groups = [each or name for name, each in spelled.items()] + self._hidden
        return (
            f"SELECT {', '.join([*columns, *same, *self._hidden, *by])}, CAST(sum({weight}) AS BIGINT) AS {self._n} FROM {source} "
            f"GROUP BY {', '.join([*groups, *by])} HAVING sum({weight}) <> 0"
        )

    # -- with an identity

    def _paired(self, source: str, by: Sequence[str]) -> str:
        """One row for each identity (and step), with the row that went and the row that came."""
        sides = [
            f"first({name}) FILTER (WHERE {self._n} {sign} 0) AS {prefix}{i}"
            for i, name in enumerate(self._compared)
            for sign, prefix in (("<", "__duckrun_pre_"), (">", "__duckrun_post_"))
        ]
        keys = [*by, *self._keys]
        return f"SELECT {', '.join([*keys, *sides, *self._counts()])} FROM {source} GROUP BY {', '.join(keys)}"

    def _counts(self) -> list[str]:
        return [
            f"CAST(coalesce(sum({self._n}) FILTER (WHERE {self._n} > 0), 0) AS BIGINT) AS {self._plus}",
            f"CAST(coalesce(-sum({self._n}) FILTER (WHERE {self._n} < 0), 0) AS BIGINT) AS {self._minus}",
        ]

    def _came(self) -> str:
        """The last step in which each identity came about: from nothing, or for upsert with other values."""
        keys = ", ".join(self._keys)
        counted = f"SELECT {keys}, {self._step}, {', '.join(self._counts())} FROM stepped GROUP BY {keys}, {self._step}"
        only = f" AND {self._minus} = 0" if self._asked.kind == "append_only" else ""
        return (
            f"SELECT {keys}, max({self._step}) AS {self._last} FROM ({counted}) AS counted "
            f"WHERE {self._plus} > 0{only} GROUP BY {keys}"
        )

    def _repeated(self) -> str:
        """How many keys are those of several rows, and three of them as text. Always one row.

        They are counted in a way that no user's query is. Spark takes a count of no rows for any other one, of the answer's too: a plan that
        holds itself then, over which it fails (StackOverflowError in SparkPlanInfo, PySpark 4.1).
        """
        named = " || ', ' || ".join(
            f"{quote_literal(f'{name} = ')} || coalesce(CAST({key} AS VARCHAR), 'NULL')"
            for name, key in zip(self._asked.identity, self._keys, strict=True)
        )
        where = f"{self._plus} > 1 OR {self._minus} > 1"
        shown = f"SELECT DISTINCT {named} AS shown FROM compared WHERE {where} ORDER BY shown LIMIT 3"
        return (
            f"SELECT (SELECT coalesce(sum(CASE WHEN {where} THEN 1 END), 0) FROM compared) AS keys, "
            f"(SELECT string_agg(shown, '; ') FROM ({shown}) AS few) AS shown"
        )

    def _checked(self) -> str:
        """A condition that fails where keys are those of several rows. Of one row, and beside each: so that none comes out before."""
        asked = self._asked
        key = ", ".join(asked.identity)
        before = quote_literal(
            f"changes of table {asked.table}: the key ({key}) is not unique among the rows that changed: "
        )
        after = quote_literal(" keys are those of several rows, such as ")
        message = f"{before} || CAST(repeated.keys AS VARCHAR) || {after} || repeated.shown || '. Name a key that is, or none.'"
        return f"CASE WHEN repeated.keys > 0 THEN {raising(InvalidConfig, message)} ELSE 'true' END = 'true'"

    def _by_identity(self) -> str:
        asked, plus, minus, side = self._asked, self._plus, self._minus, self._side
        values = {name: f"compared.{name}" for name in self._keys}
        values |= {
            name: f"CASE WHEN {side} = 0 THEN __duckrun_pre_{i} ELSE __duckrun_post_{i} END"
            for i, name in enumerate(self._compared)
        }
        columns = [f"{values[name]} AS {name}" for name in self._names]
        checked = self._checked()
        pair = f"{plus} > 0 AND {minus} > 0"
        source = f"compared CROSS JOIN repeated CROSS JOIN (VALUES (0), (1)) AS sides({side})"
        if asked.kind in ("min_delta", "full_delta"):
            columns.append(
                f"CASE WHEN {pair} THEN CASE WHEN {side} = 0 THEN 'update_preimage' ELSE 'update_postimage' END "
                f"WHEN {side} = 0 THEN 'delete' ELSE 'insert' END AS {CHANGE_TYPE}"
            )
            where = f"{checked} AND (({side} = 0 AND {minus} > 0) OR ({side} = 1 AND {plus} > 0))"
            if asked.kind == "min_delta":
                return f"SELECT {', '.join(columns)} FROM {source} WHERE {where}"
            number = f"dense_rank() OVER (ORDER BY CASE WHEN {pair} THEN 0 ELSE 1 END, {', '.join([self._step, *self._keys])})"
            columns.append(f"CASE WHEN {pair} THEN {number} END AS {PAIR}")
            order = ", ".join([COMMIT_VERSION, *self._keys, side])
            return self._in_versions(columns, source, where, order)
        where = f"{checked} AND {side} = 1 AND {plus} > 0" + (
            f" AND {minus} = 0" if asked.kind == "append_only" else ""
        )
        if asked.kind == "upsert":
            columns.append(f"CASE WHEN {minus} > 0 THEN 'update' ELSE 'insert' END AS {CHANGE_TYPE}")
        if asked.commit_version:
            on = " AND ".join(f"came.{key} IS NOT DISTINCT FROM compared.{key}" for key in self._keys)
            source += f" LEFT JOIN came ON {on}"
            columns.append(f"{_version(f'came.{self._last}')} AS {COMMIT_VERSION}")
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {where}"

    # -- with none

    def _copies(self) -> str:
        """As many rows as came or went."""
        asked, n = self._asked, self._n
        columns = [f"{name} AS {name}" for name in self._names]
        if asked.commit_version:
            return self._copies_with_last(columns)
        source = f"(SELECT *, unnest(range(abs({n}))) AS {self._copy} FROM changed"
        if asked.kind in ("min_delta", "full_delta"):
            columns.append(f"CASE WHEN {n} > 0 THEN 'insert' ELSE 'delete' END AS {CHANGE_TYPE}")
            if asked.kind == "min_delta":
                return f"SELECT {', '.join(columns)} FROM {source}) AS copies"
            columns.append(f"CAST(NULL AS BIGINT) AS {PAIR}")
            return self._in_versions(columns, f"{source}) AS copies", "true", f"{COMMIT_VERSION}, {CHANGE_TYPE}")
        if asked.kind == "upsert":
            columns.append(f"'insert' AS {CHANGE_TYPE}")
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {n} > 0) AS copies"

    def _copies_with_last(self, columns: list[str]) -> str:
        """Of n rows that came and are equal, the steps of the last n that were inserted."""
        asked, n = self._asked, self._n
        same = ", ".join(quote_identifier(spelled or name) for name, spelled in asked.columns.items())
        total = f"sum({n}) OVER (PARTITION BY {same})"
        later = (
            f"coalesce(sum(greatest({n}, 0)) OVER (PARTITION BY {same} ORDER BY {self._step} DESC "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
        )
        taken = f"SELECT *, CAST(least({n}, {total} - {later}) AS BIGINT) AS {self._plus} FROM stepped"
        copies = f"SELECT *, unnest(range({self._plus})) AS {self._copy} FROM ({taken}) AS taken WHERE {self._plus} > 0"
        if asked.kind == "upsert":
            columns.append(f"'insert' AS {CHANGE_TYPE}")
        columns.append(f"{_version(self._step)} AS {COMMIT_VERSION}")
        return f"SELECT {', '.join(columns)} FROM ({copies}) AS copies"

    # -- versions

    def _in_versions(self, columns: Sequence[str], source: str, where: str, order: str | None) -> str:
        """The rows of each step with its number and time, in the order of the steps."""
        times = ", ".join(f"({step}, {_moment(ms)})" for step, ms in (self._asked.times or {0: None}).items())
        own = f"{self._step} AS {COMMIT_VERSION}, moments.moment AS {COMMIT_TIMESTAMP}"
        return (
            f"SELECT {', '.join(columns)}, {own} FROM {source} JOIN (VALUES {times}) AS moments(number, moment) "
            f"ON moments.number = {self._step} WHERE {where}" + ("" if order is None else f" ORDER BY {order}")
        )


def _version(step: str) -> str:
    """The version of a step; NULL for what was there before the log's commits."""
    return f"CASE WHEN {step} >= 0 THEN {step} END"


def _moment(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "CAST(NULL AS TIMESTAMP WITH TIME ZONE)"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return f"CAST({quote_literal(at.isoformat(sep=' '))} AS TIMESTAMP WITH TIME ZONE)"
