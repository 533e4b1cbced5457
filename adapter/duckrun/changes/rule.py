"""The four change queries, each as one SQL query over rows with multiplicities.

Rows that sum to zero are equal before and after. The rest is paired by identity. The query is
DuckDB's SQL; an engine of another dialect translates it. Source: docs/changes.md, Definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from duckrun.errors import InvalidConfig
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.changes import CHANGE_TYPE, ChangeKind
from duckrun.values.frozen import frozen

COMMIT_VERSION, COMMIT_TIMESTAMP, PAIR = "_commit_version", "_commit_timestamp", "_pair"


def added_columns(kind: ChangeKind, *, commit_version: bool = False) -> tuple[str, ...]:
    """Return the columns that a change query adds to those of the table."""
    if kind == "feed":
        return CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP
    if kind == "full_delta":
        return CHANGE_TYPE, PAIR, COMMIT_VERSION, COMMIT_TIMESTAMP
    columns = () if kind == "append_only" else (CHANGE_TYPE,)
    return (*columns, COMMIT_VERSION) if commit_version else columns


@frozen
class Question:
    """A change query over rows with multiplicities."""

    table: str
    kind: ChangeKind
    columns: Mapping[str, str | None]
    """Compared columns, with the column of their canonical form (maps only)."""
    identity: Sequence[str]
    """Columns that identify a row; empty for none."""
    weight: str
    """Column of the multiplicity."""
    step: str
    """Column of the step's number."""
    fed: str | None = None
    """Column of the feed's ``_change_type``; None unless the feed is read."""
    predicate: str | None = None
    """Condition in DuckDB's SQL; other rows are ignored."""
    commit_version: bool = False
    times: Mapping[int, int | None] | None = None
    """Time of each step, in ms since 1970."""
    from_nothing: bool = False
    """True if the range begins before the first version: every row is an insert."""


def answer(question: Question, rows: str) -> str:
    """Return the SQL of a change query; ``rows`` is the SQL after FROM."""
    return _Answer(question, rows).text()


class _Answer:
    def __init__(self, question: Question, rows: str) -> None:
        self._question, self._rows = question, f"{rows} AS weighed"
        self._where = "" if question.predicate is None else f" WHERE ({question.predicate})"
        taken = [*question.columns, *question.identity, *(s for s in question.columns.values() if s)]
        self._n, self._plus, self._minus, self._last, self._copy = (
            fresh_name(f"__duckrun_{name}", taken) for name in ("n", "plus", "minus", "last", "copy")
        )
        self._step = quote_identifier(question.step)
        hidden = [name for name in question.identity if name not in question.columns]
        self._keys = [quote_identifier(name) for name in question.identity]
        self._hidden = [quote_identifier(name) for name in hidden]
        self._names = [quote_identifier(name) for name in question.columns]

    def text(self) -> str:
        question = self._question
        if question.fed is not None:
            return self._as_they_are(quote_identifier(question.fed))
        if question.from_nothing:
            return self._all()
        ctes = [f"changed AS ({self._difference()})"]
        if question.commit_version:
            # The differences are summed over all steps.
            ctes = [f"stepped AS ({self._difference()})", f"changed AS ({self._sum_of('stepped', self._n, [])})"]
        if not self._keys:
            final = self._copies()
        else:
            ctes += [f"compared AS ({self._sides()})", f"repeated AS ({self._repeated()})"]
            if question.commit_version:
                ctes.append(f"came AS ({self._came()})")
            final = self._by_identity()
        return f"WITH {', '.join(ctes)} {final}"

    @property
    def _by(self) -> list[str]:
        """The step column, if the query keeps steps apart."""
        return [self._step] if self._question.kind == "full_delta" else []

    def _as_they_are(self, fed: str) -> str:
        """Select the feed's rows without comparing them.

        Commits without a feed give the rows of the files that they added or removed.
        """
        kind = (
            f"coalesce({fed}, CASE WHEN {quote_identifier(self._question.weight)} > 0 THEN 'insert' ELSE 'delete' END)"
        )
        columns = [*(f"{name} AS {name}" for name in self._names), f"{kind} AS {CHANGE_TYPE}"]
        return self._in_versions(columns, self._rows, "true", None)

    def _all(self) -> str:
        """Select every row as an insert; only check that the keys are unique."""
        change_type = "" if self._question.kind == "append_only" else f", 'insert' AS {CHANGE_TYPE}"
        if not self._keys or self._hidden:  # row ids are unique
            return f"SELECT {', '.join(self._names)}{change_type} FROM {self._rows}{self._where}"
        keys = ", ".join(self._keys)
        counted = (
            f"SELECT {keys}, count(*) AS {self._plus}, 0 AS {self._minus} FROM {self._rows}{self._where} "
            f"GROUP BY {keys} HAVING count(*) > 1"
        )
        matching = f"(SELECT {', '.join(self._names)} FROM {self._rows}{self._where}) AS kept"
        columns = ", ".join(f"kept.{name} AS {name}" for name in self._names)
        return (
            f"WITH compared AS ({counted}), repeated AS ({self._repeated()}) "
            f"SELECT {columns}{change_type} FROM {matching} CROSS JOIN repeated WHERE {self._checked()}"
        )

    # -- the multiset difference

    def _difference(self) -> str:
        """Select each row whose multiplicity is not zero.

        It is positive for inserted rows and negative for deleted ones, per step if steps are kept
        apart.
        """
        by = [self._step] if self._question.commit_version else self._by
        return self._sum_of(f"{self._rows}{self._where}", quote_identifier(self._question.weight), by)

    def _sum_of(self, source: str, weight: str, by: Sequence[str]) -> str:
        spelled = {
            quote_identifier(name): same and quote_identifier(same) for name, same in self._question.columns.items()
        }
        columns = [f"first({name}) AS {name}" if same else name for name, same in spelled.items()]
        same = [each for each in spelled.values() if each] if self._question.commit_version else []
        groups = [each or name for name, each in spelled.items()] + self._hidden
        return (
            f"SELECT {', '.join([*columns, *same, *self._hidden, *by])}, CAST(sum({weight}) AS BIGINT) AS {self._n} "
            f"FROM {source} GROUP BY {', '.join([*groups, *by])} HAVING sum({weight}) <> 0"
        )

    # -- with an identity

    def _sides(self) -> str:
        """Select per identity (and step) how many rows were inserted and how many deleted."""
        keys = ", ".join([*self._by, *self._keys])
        return f"SELECT {keys}, {', '.join(self._counts())} FROM changed GROUP BY {keys}"

    def _counts(self) -> list[str]:
        return [
            f"CAST(coalesce(sum({self._n}) FILTER (WHERE {self._n} > 0), 0) AS BIGINT) AS {self._plus}",
            f"CAST(coalesce(-sum({self._n}) FILTER (WHERE {self._n} < 0), 0) AS BIGINT) AS {self._minus}",
        ]

    def _came(self) -> str:
        """Select the last step that inserted each identity, or for upsert updated it."""
        keys = ", ".join(self._keys)
        counted = f"SELECT {keys}, {self._step}, {', '.join(self._counts())} FROM stepped GROUP BY {keys}, {self._step}"
        only = f" AND {self._minus} = 0" if self._question.kind == "append_only" else ""
        return (
            f"SELECT {keys}, max({self._step}) AS {self._last} FROM ({counted}) AS counted "
            f"WHERE {self._plus} > 0{only} GROUP BY {keys}"
        )

    def _repeated(self) -> str:
        """Select one row: how many keys repeat, and three of them as text."""
        named = " || ', ' || ".join(
            f"{quote_literal(f'{name} = ')} || coalesce(CAST({key} AS VARCHAR), 'NULL')"
            for name, key in zip(self._question.identity, self._keys, strict=True)
        )
        where = f"{self._plus} > 1 OR {self._minus} > 1"
        # sum(CASE ...), since no user's query counts like this. With count(*), Spark reuses the
        # plan of any other count of no rows, also that of the answer. The plan then contains
        # itself (StackOverflowError in SparkPlanInfo, PySpark 4.1).
        shown = f"SELECT DISTINCT {named} AS shown FROM compared WHERE {where} ORDER BY shown LIMIT 3"
        return (
            f"SELECT (SELECT coalesce(sum(CASE WHEN {where} THEN 1 END), 0) FROM compared) AS keys, "
            f"(SELECT string_agg(shown, '; ') FROM ({shown}) AS few) AS shown"
        )

    def _checked(self, condition: str = "true") -> str:
        """Return a condition that also raises if a key belongs to several rows.

        It stands beside each row, so that no row is returned before the check. It is one
        expression, because an engine could apply two in the other order, and leave no row to check.
        """
        key = ", ".join(self._question.identity)
        before = quote_literal(
            f"changes of table {self._question.table}: the key ({key}) is not unique among the rows that changed: "
        )
        after = quote_literal(" keys are those of several rows, such as ")
        message = (
            f"{before} || CAST(repeated.keys AS VARCHAR) || {after} || repeated.shown || '. Name a key that is, or "
            "none.'"
        )
        raised = raising(InvalidConfig, message)
        return f"CASE WHEN repeated.keys > 0 THEN {raised} WHEN {condition} THEN 'true' END = 'true'"

    def _by_identity(self) -> str:
        question, plus, minus = self._question, self._plus, self._minus
        # Only identities are aggregated. DuckDB 1.5.5 plans aggregates over each column in a time
        # that grows with the square of their number.
        columns = [f"changed.{name} AS {name}" for name in self._names]
        pair, old = f"{plus} > 0 AND {minus} > 0", f"{self._n} < 0"
        shared = {name: f"__duckrun_same_{i}" for i, name in enumerate([*self._by, *self._keys])}
        sides = ", ".join([*(f"{name} AS {same}" for name, same in shared.items()), plus, minus])
        on = " AND ".join(f"changed.{name} IS NOT DISTINCT FROM sides.{same}" for name, same in shared.items())
        source = f"changed JOIN (SELECT {sides} FROM compared) AS sides ON {on} CROSS JOIN repeated"
        if question.kind in ("min_delta", "full_delta"):
            checked = self._checked()
            columns.append(
                f"CASE WHEN {pair} THEN CASE WHEN {old} THEN 'update_preimage' ELSE 'update_postimage' END "
                f"WHEN {old} THEN 'delete' ELSE 'insert' END AS {CHANGE_TYPE}"
            )
            if question.kind == "min_delta":
                return f"SELECT {', '.join(columns)} FROM {source} WHERE {checked}"
            number = (
                f"dense_rank() OVER (ORDER BY CASE WHEN {pair} THEN 0 ELSE 1 END, "
                f"{', '.join([self._step, *(f'changed.{key}' for key in self._keys)])})"
            )
            columns.append(f"CASE WHEN {pair} THEN {number} END AS {PAIR}")
            order = ", ".join([COMMIT_VERSION, *(f"changed.{key}" for key in self._keys), self._n])
            return self._in_versions(columns, source, checked, order)
        where = f"{self._n} > 0" + (f" AND {minus} = 0" if question.kind == "append_only" else "")
        if question.kind == "upsert":
            columns.append(f"CASE WHEN {minus} > 0 THEN 'update' ELSE 'insert' END AS {CHANGE_TYPE}")
        if question.commit_version:
            on = " AND ".join(f"came.{key} IS NOT DISTINCT FROM changed.{key}" for key in self._keys)
            source += f" LEFT JOIN came ON {on}"
            columns.append(f"{_version(f'came.{self._last}')} AS {COMMIT_VERSION}")
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {self._checked(where)}"

    # -- with none

    def _copies(self) -> str:
        """Select each row once per insertion or deletion."""
        question, n = self._question, self._n
        columns = [f"{name} AS {name}" for name in self._names]
        if question.commit_version:
            return self._copies_with_last(columns)
        source = f"(SELECT *, unnest(range(abs({n}))) AS {self._copy} FROM changed"
        if question.kind in ("min_delta", "full_delta"):
            columns.append(f"CASE WHEN {n} > 0 THEN 'insert' ELSE 'delete' END AS {CHANGE_TYPE}")
            if question.kind == "min_delta":
                return f"SELECT {', '.join(columns)} FROM {source}) AS copies"
            columns.append(f"CAST(NULL AS BIGINT) AS {PAIR}")
            return self._in_versions(columns, f"{source}) AS copies", "true", f"{COMMIT_VERSION}, {CHANGE_TYPE}")
        if question.kind == "upsert":
            columns.append(f"'insert' AS {CHANGE_TYPE}")
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {n} > 0) AS copies"

    def _copies_with_last(self, columns: list[str]) -> str:
        """Select n equal inserted rows with the steps of the last n inserts."""
        question, n = self._question, self._n
        same = ", ".join(quote_identifier(spelled or name) for name, spelled in question.columns.items())
        total = f"sum({n}) OVER (PARTITION BY {same})"
        later = (
            f"coalesce(sum(greatest({n}, 0)) OVER (PARTITION BY {same} ORDER BY {self._step} DESC "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
        )
        taken = f"SELECT *, CAST(least({n}, {total} - {later}) AS BIGINT) AS {self._plus} FROM stepped"
        copies = f"SELECT *, unnest(range({self._plus})) AS {self._copy} FROM ({taken}) AS taken WHERE {self._plus} > 0"
        if question.kind == "upsert":
            columns.append(f"'insert' AS {CHANGE_TYPE}")
        columns.append(f"{_version(self._step)} AS {COMMIT_VERSION}")
        return f"SELECT {', '.join(columns)} FROM ({copies}) AS copies"

    # -- versions

    def _in_versions(self, columns: Sequence[str], source: str, where: str, order: str | None) -> str:
        """Select rows with the version and the time of their step, ordered by step."""
        times = ", ".join(f"({step}, {_moment(ms)})" for step, ms in (self._question.times or {0: None}).items())
        version_columns = f"{self._step} AS {COMMIT_VERSION}, moments.moment AS {COMMIT_TIMESTAMP}"
        return (
            f"SELECT {', '.join(columns)}, {version_columns} FROM {source} JOIN (VALUES {times}) AS moments(number, "
            f"moment) ON moments.number = {self._step} WHERE {where}" + ("" if order is None else f" ORDER BY {order}")
        )


def _version(step: str) -> str:
    """Return the version of a step; NULL for rows older than the log's commits."""
    return f"CASE WHEN {step} >= 0 THEN {step} END"


def _moment(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "CAST(NULL AS TIMESTAMP WITH TIME ZONE)"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return f"CAST({quote_literal(at.isoformat(sep=' '))} AS TIMESTAMP WITH TIME ZONE)"
