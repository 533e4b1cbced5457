"""Written by one, changed by the other: after each step every reader agrees with a model in Python.

Tables are made by plain delta-spark, by plain deltalake and by either engine, over the alphabet of values, partitioned and not,
with and without table features; then either engine changes them. The seed is DUCKRUN_TEST_SEED, and DUCKRUN_TEST_ONLY=<number>
runs one table alone.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import Session
from duckrun.errors import SchemaMismatch, UnsupportedFeature
from tests.differential.writers import READERS, Case, make, multiset, steps
from tests.drawing import rounds, seed

pytestmark = [pytest.mark.differential, pytest.mark.spark, pytest.mark.timeout(3600)]
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 300) / 4
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
AT_LEAST = rounds(12)
ONLY = os.environ.get("DUCKRUN_TEST_ONLY")


def disagreement(found: Counter[Any], expected: Counter[Any]) -> str:
    return f"missing {dict(expected - found)}\n  extra   {dict(found - expected)}"


class Table:
    """One table from its first row to its last."""

    def __init__(self, case: Case, root: Path, sessions: dict[str, Session], spark: Any) -> None:
        self.case, self.sessions, self.spark = case, sessions, spark
        self.name = f"main.t{case.number}"
        self.location = root / "main" / f"t{case.number}"
        self.readers = dict(READERS)

    def run(self) -> Counter[str]:
        """What came of it: steps that were carried out, and those that were refused by name."""
        case, outcome = self.case, Counter[str]()
        first = case.rows(range(1, 9))
        case.model = first.to_pylist()
        self.location.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(
                case,
                self.location,
                first,
                self.spark,
                self.sessions.get(case.maker, self.sessions["duckdb"]),
                self.name,
            )
        except (SchemaMismatch, UnsupportedFeature):
            assert case.may_refuse
            assert not self.location.exists(), "a refused first write leaves no folder"
            return Counter(refused=1)
        except Exception as error:
            if not case.maker.startswith("plain"):
                raise
            assert case.partitioned, f"{case.maker} cannot write {case.kind}: {error}"
            return Counter({"not made by its plain writer": 1})
        self._choose_readers()
        for step in steps(case):
            before = list(case.model)
            said, carry_out = step(case)
            case.log.append(said)
            try:
                carry_out(self.sessions[case.engine], self.name)
                outcome["carried out"] += 1
            except (SchemaMismatch, UnsupportedFeature) as error:
                if not case.may_refuse:
                    raise
                assert self.name.removeprefix("main.") in str(error), "a refusal names the table"
                case.log.append(f"  refused: {error}")
                case.model = before
                outcome["refused"] += 1
            self._check(f"after {said}")
        return outcome

    def _choose_readers(self) -> None:
        """A reader that does not read what a plain writer wrote is not asked about what comes after. What a plain writer made of
        the rows, such as NULL of a text that its folders use for NULL, is what it reads itself.
        """
        if self.case.maker in READERS:
            self.case.model = READERS[self.case.maker](self.location, self.spark)
        expected = multiset(self.case.model)
        for name, read in READERS.items():
            try:
                agrees = multiset(read(self.location, self.spark)) == expected
            except Exception as error:
                agrees = False
                self.case.log.append(f"{name} cannot read it: {str(error)[:100]}")
            if not agrees:
                assert self.case.maker.startswith("plain") or name != "plain spark", "plain Spark reads what we make"
                del self.readers[name]
        self._check("as it was made")
        if self.case.wraps:
            self.readers.pop("plain deltalake", None)

    def _check(self, when: str) -> None:
        expected = multiset(self.case.model)
        for name, read in list(self.readers.items()):
            try:
                found = multiset(read(self.location, self.spark))
            except NotImplementedError as error:
                self.case.log.append(f"{name} is asked no more: {error}")
                del self.readers[name]
                continue
            assert found == expected, f"{when}, {name}:\n  {disagreement(found, expected)}"
        for name, session in self.sessions.items():
            try:
                found = multiset(session.scan(self.name).toArrow().to_pylist())
            except UnsupportedFeature:
                assert self.case.may_refuse
                continue
            assert found == expected, f"{when}, session on {name}:\n  {disagreement(found, expected)}"


def test_what_one_wrote_the_other_changes(tmp_path: Path, spark: Any, figures: Callable[[str], None]) -> None:
    started, number, outcomes = time.monotonic(), 0, Counter[str]()
    root = tmp_path / "lake"
    with duckrun.connect(root, memory_limit="2GB") as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        sessions = {"duckdb": duck, "spark": other}
        while number < AT_LEAST or time.monotonic() - started < BUDGET:
            if ONLY is None or number == int(ONLY):
                case = Case.drawn(number, random.Random(f"{seed()}/{number}"))
                try:
                    outcomes += Table(case, root, sessions, spark).run()
                except BaseException as error:
                    again = f"DUCKRUN_TEST_SEED={seed()} DUCKRUN_TEST_ONLY={number} pytest -m differential {__file__}"
                    error.add_note("\n".join([str(case), *case.log, f"again: {again}"]))
                    raise
            elif number > int(ONLY):
                break
            number += 1
    figures(f"{number} tables, {dict(outcomes)}, seed {seed()}, {time.monotonic() - started:.0f} s")
    if ONLY is None:
        assert outcomes["carried out"] > outcomes["refused"]
