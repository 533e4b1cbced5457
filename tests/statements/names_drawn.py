"""Statements over tables that share their names, drawn by a seed: queries and changes of every kind.

Schemas, tables, struct columns, aliases and common table expressions take their names from one small pool. Of the columns most are
named in one of the ways that find them; some have a qualifier that is drawn without looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

COLUMNS = {
    "memory.a.t": {"id": "n", "x": "s", "t": "a.t"},
    "memory.a.b": {"id": "n", "t": "b"},
    "memory.b.t": {"id": "n", "y": "s"},
    "memory.b.a": {"id": "n", "x": "s", "a": "b"},
    "memory.main.t": {"id": "n", "z": "s"},
    "memory.main.b": {"id": "n", "y": "s"},
    "other.a.t": {"id": "n", "w": "s"},
    "other.main.t": {"id": "n", "x": "s"},
}
"""The columns of each table: numbers (n), texts (s) and structs, by the paths of their fields."""
FIELDS = {"a.t": ("id", "t"), "b": ("id",)}
STRUCTS = {"a.t": "{{'id': {0} + 10, 't': {0} + 20}}", "b": "{{'id': {0} + 30}}"}
ALIASES = ("a", "b", "t", "u")


def setup(table: str, shift: int = 0) -> str:
    """A statement that makes a table with its first rows. Each has some ids that others lack."""
    first = (*COLUMNS,).index(table) % 3 + shift
    values = []
    for name, kind in COLUMNS[table].items():
        if kind in STRUCTS:
            value = STRUCTS[kind].format("i")
        else:
            value = "i" if kind == "n" else f"'{table.replace('memory.', '')} ' || i"
        values.append(f"{value} as {name}")
    return f"create or replace table {table} as select {', '.join(values)} from range({first}, {first + 3}) r(i)"


@dataclass
class Named:
    """A table in a FROM clause: the names that find it, and its columns."""

    names: tuple[str, ...]
    columns: dict[str, str]


@dataclass
class Drawn:
    """Draws statements. Every choice is of one random source."""

    random: Random
    generated: str = ""
    """The name that DuckDB gives to the expression of the last query with one maximum."""

    def query(self) -> str:
        return self._query((), 0, ctes={})

    def change(self) -> tuple[str, str]:
        """A change, and the table that it changes."""
        random = self.random
        table = random.choice(sorted(COLUMNS))
        target = self._named(table)
        written = self._spelled(table)
        text = next(name for name, kind in COLUMNS[table].items() if name != "id")
        kind = random.choice(("delete", "using", "update", "from", "insert", "conflict", "merge", "create", "view"))
        if kind == "create":
            return f"create or replace table made as {self.query()}", "made"
        if kind == "view":
            return f"create or replace view seen as {self.query()}", "seen"
        if kind == "delete":
            return f"delete from {written} where {self._condition((target,), 1, {})}", table
        is_text = COLUMNS[table][text] == "s"
        if kind == "update":
            where = f" where {self._condition((target,), 1, {})}" if random.random() < 0.7 else ""
            column, value = (text, self._text((target,), 1)) if is_text else ("id", f"{self._exact(target)} + 0")
            return f"update {written} set {column} = {value}{where}", table
        if kind == "insert":
            source = self._table({}, without_alias=0.7)
            known = (source[1],)
            listed = f"({'id, ' + text if is_text else 'id'})"
            value = f", {self._text(known, 2)}" if is_text else ""
            condition = f"not exists (select 1 from {written} where {self._equal((target, *known), target, known[0])})"
            return (
                f"insert into {written} {listed} select {self._exact(known[0])} + 5{value} from {source[0]} "
                f"where {condition} and {self._exact(known[0])} < 4",
                table,
            )
        if kind == "conflict":
            return self._upsert(table, text if is_text else ""), table
        source_text, source = self._table({}, without_alias=0.7, but=table)
        on = self._equal((target, source), target, source)
        if kind == "using":
            return (
                f"delete from {written} using {source_text} where {on} and {self._condition((target, source), 1, {})}",
                table,
            )
        value = self._text((target, source), 1) if is_text else self._exact(source)
        column = text if is_text else "id"
        if kind == "from":
            more = f" and {self._condition((target, source), 1, {})}" if random.random() < 0.4 else ""
            return f"update {written} set {column} = {value} from {source_text} where {on}{more}", table
        matched = f" and {self._exact(target)} < 3" if random.random() < 0.5 else ""
        clauses = f"when matched{matched} then update set {column} = {value}"
        if matched and random.random() < 0.5:
            clauses += " when matched then delete"
        return f"merge into {written} using {source_text} on {on} {clauses}", table

    def _upsert(self, table: str, text: str) -> str:
        """An INSERT with ON CONFLICT (id), which updates a column of texts where there is one."""
        random, target = self.random, self._named(table)
        source_text, source = self._table({}, without_alias=0.7)
        value = f", {self._text((source,), 2)}" if text else ""
        rows = (
            f"insert into {self._spelled(table)} (id{', ' + text if text else ''}) "
            f"select {self._exact(source)} + {random.choice((0, 1))}{value} from {source_text}"
        )
        if not text or random.random() < 0.2:
            return f"{rows} on conflict (id) do nothing"
        sides = ["excluded", random.choice(target.names)]
        column = random.choice((f"{random.choice(sides)}.{text}", f"'<' || {sides[1]}.{text} || excluded.{text}", text))
        where = (
            f" where {sides[1]}.id {random.choice(('<', '>='))} {random.choice(sides)}.id + 1"
            if random.random() < 0.5
            else ""
        )
        return f"{rows} on conflict (id) do update set {text} = {column}{where}"

    # -- queries

    def _query(self, outer: tuple[Named, ...], depth: int, ctes: dict[str, dict[str, str]], items: str = "") -> str:
        random = self.random
        with_ = ""
        if depth < 2 and random.random() < 0.25:
            name, items = random.choice(("t", "a", "b")), random.choice(("n", "n", "max"))
            with_ = f"with {name} as ({self._query((), depth + 2, ctes, items)}) "
            ctes = {**ctes, name: {"id": "n", "n": "n"} if items == "n" else {self._quoted(self.generated): "n"}}
        froms: list[str] = []
        known: list[Named] = []
        for _ in range(random.choice((1, 1, 2, 2, 3)) if depth < 2 else 1):
            if depth < 2 and random.random() < 0.2:
                alias = random.choice(ALIASES)
                lateral = random.choice(("lateral ", "")) if known else ""
                seen = (*known, *outer) if lateral else outer
                if random.random() < 0.4:
                    froms.append(f"{lateral}({self._query(seen, depth + 1, ctes, 'max')}) {alias}")
                    known.append(Named((alias,), {self._quoted(self.generated): "n"}))
                    continue
                froms.append(f"{lateral}({self._query(seen, depth + 1, ctes, 'n')}) {alias}")
                known.append(Named((alias,), {"id": "n", "n": "n"}))
                continue
            written, named = self._table(ctes)
            if any(set(named.names) <= {*each.names, named.names[0]} for each in known):
                continue
            froms.append(written)
            known.append(named)
        listed = froms[0]
        for written in froms[1:]:
            if "lateral" in written or random.random() < 0.6:
                listed += f", {written}" if " join " not in listed else f" cross join {written}"
            else:
                listed += f" join {written} on true"
        seen = (*known, *outer)
        inner = (*known, *known, *known, *outer)
        where = f" where {self._condition(inner, depth, ctes)}" if random.random() < 0.75 else ""
        if items == "1":
            return f"{with_}select 1 from {listed}{where}"
        if items == "max":
            self.generated = f"max({self._number(inner, depth)})"
            return f"{with_}select {self.generated} from {listed}{where}"
        if items == "n":
            return f"{with_}select {self._number(inner, depth)} as id, {self._number(inner, depth)} as n from {listed}{where}"
        style = random.random()
        if style < 0.1:
            return f"{with_}from {listed}{where}"
        if style < 0.25:
            key = self._number(tuple(known), depth)
            return f"{with_}select {key}, max({self._text(seen, depth)}), count(*) from {listed}{where} group by {key}"
        chosen = [self._item(inner, depth, ctes) for _ in range(random.choice((1, 2, 3)))]
        return f"{with_}select {', '.join(chosen)} from {listed}{where}"

    def _item(self, known: tuple[Named, ...], depth: int, ctes: dict[str, dict[str, str]]) -> str:
        draw = self.random.random()
        if draw < 0.15 and depth < 2:
            return f"({self._query(known, depth + 1, ctes, 'max')})"
        if draw < 0.25:
            return self.random.choice(self.random.choice(known).names)  # a whole row, if no column has that name
        return self._number(known, depth) if draw < 0.6 else self._text(known, depth)

    def _condition(self, known: tuple[Named, ...], depth: int, ctes: dict[str, dict[str, str]]) -> str:
        draw = self.random.random()
        if depth < 2 and draw < 0.45:
            negated = self.random.choice(("", "not "))
            return f"{negated}exists ({self._query(known, depth + 1, ctes, '1')})"
        if depth < 2 and draw < 0.6:
            return f"{self._number(known, depth)} = ({self._query(known, depth + 1, ctes, 'max')})"
        return f"{self._number(known, depth)} {self.random.choice(('=', '<', '<>', '>='))} {self._number(known, depth)}"

    def _equal(self, known: tuple[Named, ...], left: Named, right: Named) -> str:
        return f"{self._exact(left, known)} = {self._exact(right, known)}"

    def _quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    # -- tables and columns

    def _table(self, ctes: dict[str, dict[str, str]], without_alias: float = 0.75, but: str = "") -> tuple[str, Named]:
        random = self.random
        if ctes and random.random() < 0.4:
            name = random.choice(sorted(ctes))
            return name, Named((name,), ctes[name])
        table = random.choice([name for name in sorted(COLUMNS) if name != but])
        catalog, schema, name = table.split(".")
        written = self._spelled(table)
        if "." not in written and written in ctes:
            written = table
        if random.random() < without_alias:
            return written, self._named(table)
        alias = random.choice(ALIASES)
        return f"{written} {random.choice(('', 'as '))}{alias}", Named((alias,), COLUMNS[table])

    def _spelled(self, table: str) -> str:
        catalog, schema, name = table.split(".")
        short = [table]
        if catalog == "memory":
            short += [f"{schema}.{name}"] * 5 + ([name] * 4 if schema == "main" else [])
        return self.random.choice(short)

    def _named(self, table: str) -> Named:
        catalog, schema, name = table.split(".")
        return Named((name, f"{schema}.{name}", f"{schema}.{name}", table, f"{catalog}.{name}"), COLUMNS[table])

    def _paths(self, named: Named, kind: str) -> Iterator[str]:
        for column, of in named.columns.items():
            if of == kind:
                yield column
            elif of in FIELDS and kind == "n":
                yield from (f"{column}.{field}" for field in FIELDS[of])

    def _number(self, known: tuple[Named, ...], depth: int) -> str:
        random = self.random
        if random.random() < 0.08:  # a qualifier that is drawn without looking
            catalog, schema, name = random.choice(sorted(COLUMNS)).split(".")
            before = random.choice((name, f"{schema}.{name}", f"{catalog}.{schema}.{name}", schema, ""))
            return f"{before}.{random.choice(('id', 't.id'))}" if before else "id"
        named = random.choice(known)
        path = random.choice(list(self._paths(named, "n")))
        qualifier = self._qualifier(named, known)
        column = path if random.random() < 0.06 else f"{qualifier}.{path}"
        return column.upper() if random.random() < 0.05 else column

    def _qualifier(self, named: Named, known: tuple[Named, ...]) -> str:
        """A name of a table; mostly one that no other table has."""
        others = {name for each in known if each is not named for name in each.names}
        own = [name for name in named.names if name not in others]
        return self.random.choice(own if own and self.random.random() < 0.95 else named.names)

    def _text(self, known: tuple[Named, ...], depth: int) -> str:
        random = self.random
        named = random.choice(known)
        paths = list(self._paths(named, "s"))
        if not paths:
            return f"{self._number(known, depth)}::varchar"
        column = f"{self._qualifier(named, known)}.{random.choice(paths)}"
        return random.choice((column, f"'<' || {column}", f"upper({column})"))

    def _exact(self, named: Named, known: tuple[Named, ...] = ()) -> str:
        """The id of a table, by a name that no other table has where it is seen."""
        return f"{max(named.names, key=lambda name: name.count('.'))}.id"
