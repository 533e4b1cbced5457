"""project(): a dbt project in a notebook.

It shows the compiled SQL and the rows of the project's models and CTEs.
"""

from __future__ import annotations

import os
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt.adapters.duckrun.credentials import DuckrunCredentials
from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.model.node import Node
from dbt.adapters.duckrun.statements import NodeEngine
from dbt.adapters.factory import get_adapter_by_type
from sqlglot import exp

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.frame import Frame
from duckrun.session import Session
from duckrun.sql.dialects import tree_in
from duckrun.statements.parse.parsing import parse
from duckrun.statements.parse.tokens import TokenReader, split
from duckrun.statements.values import Query
from duckrun.values.choices import EngineName


@dataclass(frozen=True)
class Compiled:
    """SQL that dbt has compiled, and its node."""

    text: str
    node: Node


class Project:
    """A dbt project whose profile is of type duckrun, for reading; nothing is written.

    Each Frame is lazy, on the engine of its model, and keeps the versions that it was created from.
    The next Frame reads the newest versions of its time.

    Example::

        shop = project("dbt/")
        shop.show("orders").show()
        shop.cte("orders", "paid").pl()
        shop.sql("select count(*) from {{ ref('orders') }}").collect()
    """

    def __init__(self, folder: str | os.PathLike[str] = ".", target: str | None = None) -> None:
        self.folder = Path(folder).resolve()
        self.target = target
        self._env: LakeEnvironment | None = None

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r}, target={self.target!r})"

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- models

    def compiled(self, model: str) -> str:
        """Return the SQL of a model, as dbt would run it now.

        Raises:
            InvalidConfig: The model does not exist, or is written in Python.
        """
        return self._compiled(model).text

    def show(self, model: str) -> Frame:
        """Return the rows of a model's SQL now, without its table."""
        return self._frame(self._compiled(model))

    def sql(self, text: str) -> Frame:
        """Return the rows of a query.

        ``{{ ref('x') }}``, macros and variables work as in the project.
        """
        result = self._dbt("compile", "--inline", text)
        return self._frame(Compiled(result.node.compiled_code, self._node(result.node)))

    def ctes(self, model: str) -> list[str]:
        """Return the names of a model's common table expressions, in order.

        The model's ephemeral models are included.
        """
        return [cte.alias for cte in _ctes(self._compiled(model))]

    def cte(self, model: str, name: str) -> Frame:
        """Return the rows of one of a model's common table expressions.

        Raises:
            InvalidConfig: The model has no such expression; the text lists its expressions.
        """
        compiled = self._compiled(model)
        names = [cte.alias for cte in _ctes(compiled)]
        position = next((i for i, known in enumerate(names) if known.lower() == name.lower()), None)
        if position is None:
            raise InvalidConfig(f"Model {model} has no CTE {name!r}; it has {', '.join(names) or 'none'}.")
        return self._frame(Compiled(_up_to(compiled, position), compiled.node))

    # -- dbt

    def _compiled(self, model: str) -> Compiled:
        node = self._dbt("compile", "--select", model).node
        if node.language != "sql" or not node.compiled_code:
            raise InvalidConfig(f"Model {model} has no SQL: it is written in {node.language}.")
        return Compiled(node.compiled_code, self._node(node))

    def _dbt(self, *command: str) -> Any:
        """Return the only result of a dbt command. Raises InvalidConfig with dbt's message."""
        from dbt.cli.main import dbtRunner

        place = ["--project-dir", str(self.folder), *(["--target", self.target] if self.target else [])]
        if (self.folder / "profiles.yml").exists():
            place += ["--profiles-dir", str(self.folder)]
        with chdir("."):  # dbt changes the folder
            done = dbtRunner().invoke(["--quiet", "--log-level", "none", *command, *place])
        self._take(get_adapter_by_type("duckrun").config.credentials)
        results = list(getattr(done.result, "results", None) or [])
        if not done.success or len(results) != 1:
            messages = "; ".join(str(r.message) for r in results if r.message)
            why = str(done.exception or messages or f"it selects {len(results)} nodes, not one")
            raise InvalidConfig(f"dbt {' '.join(command)}: {why}")
        return results[0]

    def _take(self, credentials: DuckrunCredentials) -> None:
        """Open an environment of our own, since dbt's environment ends with its command."""
        if self._env is None or self._env.creds != credentials:
            self.close()
            with chdir(self.folder):  # a relative root_path is relative to the project
                self._env = LakeEnvironment(credentials, "project()")
            for lake in self._env.lakes:
                lake.read_only = True

    def _node(self, node: Any) -> Node:
        assert self._env is not None, "a command of dbt has said what the profile is"
        return Node.of(node, {}, self._env.creds.engine)

    # -- rows

    def _frame(self, compiled: Compiled) -> Frame:
        env = self._env
        assert env is not None, "a command of dbt has said what the profile is"
        statements = parse(compiled.text, compiled.node.dialect)
        if len(statements) != 1 or not isinstance(statements[0], Query):
            raise UnsupportedFeature("A project is read only here: give one query.")
        name: EngineName = compiled.node.engine  # type: ignore[assignment]
        engine = env.spark if name == "spark" else NodeEngine(env, env.engine.cursor())
        session = Session(env.lake, engine=name, arbiter=env.arbiter, lakes=env.lakes, engines={name: engine})
        frame = session.sql(compiled.text, dialect=compiled.node.dialect)
        assert isinstance(frame, Frame), "a query gives a Frame"
        return frame

    def close(self) -> None:
        """Close the environment; Frames of this project cannot be read afterwards."""
        if self._env is not None:
            self._env.close()
            self._env = None


def _ctes(compiled: Compiled) -> list[exp.CTE]:
    with_ = tree_in(compiled.text, compiled.node.dialect).args.get("with_")
    return [] if with_ is None else with_.expressions


def _up_to(compiled: Compiled, number: int) -> str:
    """Return a query of the rows of a model's CTE by its number: the model's text to its end."""
    (source,) = split(compiled.text, compiled.node.dialect)
    reader = TokenReader(source)
    reader.expect("WITH")
    reader.accept("RECURSIVE")
    for _ in range(number + 1):
        reader.accept(",")
        name = reader.left[0]
        reader.until("AS")
        reader.expect("AS")
        reader.accept("NOT")
        reader.accept("MATERIALIZED")
        reader.brackets()
    text = compiled.text
    spelled = text[name.start : name.end + 1]
    return f"{text[: source.tokens[reader.at - 1].end + 1]}\nSELECT * FROM {spelled}"
