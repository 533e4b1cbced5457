"""Each feature of Delta tables on both engines: the same rows after every step, or a refusal that says where to go.

A run of the suite `matrix` draws a part of it. The whole fills docs/features.md: DUCKRUN_WRITE_PAGES=1 writes it, else one that differs fails.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import DuckrunError, MergeSpec, SchemaMismatch, Session, UnsupportedFeature, WriteSpec
from duckrun.errors import InvalidConfig
from duckrun.values.rows import DeleteSpec, UpdateSpec
from duckrun.values.tables import AddColumn, AlterSpec, ColumnSpec, OptimizeSpec, RenameColumn, RestoreSpec
from tests import drawing
from tests.engines.feature_cases import (
    APPENDS_ONLY,
    ENGINES,
    FEATURES,
    OTHER,
    PAGE,
    STEPS,
    YES,
    Feature,
    for_engine,
    may_go_together,
    page,
    source,
    together,
)
from tests.lake import rows_of
from tests.pages import wrapped

pytestmark = pytest.mark.spark
CASES = [pytest.param(feature, engine, id=f"{feature.name}-{engine}") for feature in FEATURES for engine in ENGINES]

Found = dict[tuple[str, str, str], str]


@pytest.fixture(scope="module")
def found() -> Found:
    """What the tests of this module found."""
    return {}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake."""
    root = tmp_path_factory.mktemp("features") / "lake"
    with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        yield {"duckdb": duck, "spark": other}


@dataclass
class Bench:
    """One table with a feature, worked on by one engine and read by both after every step."""

    both: dict[str, Session]
    feature: Feature
    engine: str
    name: str

    def __post_init__(self) -> None:
        self.rows = {1: "a", 2: "b", 3: "c"}

    @property
    def session(self) -> Session:
        return self.both[self.engine]

    def source(self, *ids: int) -> duckrun.SQL:
        return source(self.feature, self.engine, *ids)

    def step(self, step: str) -> str:
        """Do one thing to the table, if it can be done; then both engines read what they should."""
        before = self.both["duckdb"].snapshot(self.name).version
        try:
            getattr(self, "do_" + step.partition(",")[0])()
        except UnsupportedFeature as error:
            assert self.engine == "duckdb"
            self.check_refusal(error)
            outcome = OTHER
        except InvalidConfig as error:
            assert self.feature.appends_only and "append-only" in str(error) and self.name in str(error), error
            outcome = APPENDS_ONLY
        else:
            self.check()
            return YES
        assert self.both["duckdb"].snapshot(self.name).version == before, "what was refused wrote nothing"
        return outcome

    def check(self) -> None:
        for engine, session in self.both.items():
            assert rows_of(session.sql(f"select id, v from {self.name}")) == sorted(self.rows.items())
            for extra in self.feature.extras:
                holds, dialect = for_engine(extra.holds, engine)
                others = session.sql(f"select id from {self.name} where not ({holds})", dialect=dialect)
                assert rows_of(others) == [], (engine, extra.name)
                if extra.differ:
                    counted = session.sql(f"select count(distinct {extra.quoted}) from {self.name}", dialect="spark")
                    assert rows_of(counted) == [(len(self.rows),)]

    def check_refusal(self, error: UnsupportedFeature) -> None:
        """It names the table and the feature, and says where to go."""
        text = str(error)
        called = self.feature.says or self.feature.name.replace(" ", "")
        assert self.name in text and "engine: spark" in text and re.search(called, text, re.IGNORECASE), text

    def do_read(self) -> None:
        frame = self.session.scan(self.name)
        if not self.feature.arrow:
            with pytest.raises(UnsupportedFeature, match=r"column x\b"):
                frame.toArrow()
            return
        assert sorted((row["id"], row["v"]) for row in frame.collect()) == sorted(self.rows.items())

    def do_append(self) -> None:
        if self.feature.broken is not None:
            kinds = (SchemaMismatch, UnsupportedFeature)
            with pytest.raises(kinds, match=self.name):
                self.session.execute(self.name, WriteSpec("append"), duckrun.SQL(self.feature.broken, "spark"))
        self.session.execute(self.name, WriteSpec("append"), self.source(4))
        self.rows[4] = "n4"

    def do_merge(self) -> None:
        self.session.execute(self.name, MergeSpec(("id",)), self.source(3, 5))
        self.rows |= {3: "n3", 5: "n5"}

    def do_update(self) -> None:
        self.session.execute(self.name, UpdateSpec({"v": "'u'"}, "id = 2"))
        self.rows[2] = "u"
        self.session.execute(self.name, DeleteSpec("id = 1"))
        del self.rows[1]

    def do_optimize(self) -> None:
        before = self.session.snapshot(self.name)
        partitions = [tuple(sorted(file.partition_values.items())) for file in before.files()]
        self.session.execute(self.name, OptimizeSpec())
        after = self.session.snapshot(self.name).version
        assert after > before.version or len(set(partitions)) == len(partitions), "there were files to write together"

    def do_alter(self) -> None:
        self.unaltered = self.session.snapshot(self.name).version
        self.session.execute(self.name, AlterSpec((AddColumn(ColumnSpec("more", "BIGINT")),)))
        self.check()
        by_spark = self.engine == "spark" and self.session.lake.format.only_spark(self.session.snapshot(self.name))
        if (self.feature.appends_only or by_spark) and not self.is_mapped:
            return  # a new name is one of new files, which Spark's own statements do not write
        name = "one ` more" if self.is_mapped else "one_more"
        self.session.execute(self.name, AlterSpec((RenameColumn("more", name),)))

    @property
    def is_mapped(self) -> bool:
        return "delta.columnMapping.mode" in self.session.snapshot(self.name).properties

    def do_restore(self) -> None:
        """As it was before its columns were altered, with a row that has gone since."""
        if not self.feature.appends_only:
            self.session.execute(self.name, DeleteSpec("id = 3"))
        self.session.execute(self.name, RestoreSpec(self.unaltered))
        self.check()
        self.session.execute(self.name, WriteSpec("append"), self.source(8))
        self.rows[8] = "n8"


def created(both: dict[str, Session], feature: Feature, engine: str) -> tuple[str, str]:
    """A table that the library makes by itself, with its rows if it could; and what came of it."""
    name = f"main.{engine}_{FEATURES.index(feature)}_own"
    bench = Bench(both, feature, engine, name)
    try:
        both[engine].execute(name, feature.spec)
    except UnsupportedFeature as error:
        assert engine == "duckdb"
        bench.check_refusal(error)
        return name, OTHER
    both[engine].execute(name, WriteSpec("append"), bench.source(1, 2, 3))
    bench.rows = {i: f"n{i}" for i in (1, 2, 3)}
    bench.check()
    return name, YES


@pytest.mark.matrix
@pytest.mark.drawn(11)  # odd, so that each part has both engines
@pytest.mark.parametrize(("feature", "engine"), CASES)
def test_a_table_with_a_feature(
    both: dict[str, Session], found: Found, feature: Feature, engine: str, spark: Any
) -> None:
    name = f"main.{engine}_{FEATURES.index(feature)}"
    location = Path(both["duckdb"].ref(name).location)
    for statement in feature.made:
        spark.sql(statement.replace("{t}", f"delta.`{location}`"))
    bench = Bench(both, feature, engine, name)
    for step in STEPS:
        found[feature.name, engine, step] = bench.step(step)
    own, found[feature.name, engine, "create"] = created(both, feature, engine)
    if found[feature.name, engine, "create"] != YES:
        return
    other = Bench(both, feature, next(e for e in ENGINES if e != engine), own)
    other.rows = {i: f"n{i}" for i in (1, 2, 3)}
    for step in ("append", "merge", "update, delete"):
        outcome = other.step(step)
        assert outcome == YES or feature.appends_only


ABLE = [feature for feature in FEATURES if feature.name != "none"]
PAIRS = [pair for pair in itertools.combinations(ABLE, 2) if may_go_together(pair)]


def in_turns(both: dict[str, Session], feature: Feature, name: str) -> None:
    """A table made, and changed step by step, by one engine or the other."""
    random = Random(f"{drawing.seed()} {feature.name}")
    engine = random.choice(ENGINES)
    both[engine].execute(name, feature.spec)
    bench = Bench(both, feature, engine, name)
    both[engine].execute(name, WriteSpec("append"), bench.source(1, 2, 3))
    bench.rows = {i: f"n{i}" for i in (1, 2, 3)}
    bench.check()
    for step in STEPS[1:]:
        bench.engine = random.choice(ENGINES)
        assert bench.step(step) == YES or feature.appends_only, (step, bench.engine)


@pytest.mark.matrix
@pytest.mark.drawn(2)
@pytest.mark.parametrize("number", range(4))
def test_two_features_in_one_table(both: dict[str, Session], number: int) -> None:
    pairs = Random(drawing.seed()).sample(PAIRS, 4)
    in_turns(both, together(pairs[number]), f"main.pair_{number}")


@pytest.mark.matrix
@pytest.mark.drawn(2)
@pytest.mark.parametrize("layout", ["partitioned", "liquid clustering"])
def test_all_features_in_one_table(both: dict[str, Session], layout: str) -> None:
    but = {"append-only", "column mapping by id", {"partitioned": "liquid clustering"}.get(layout, "partitioned")}
    everything = together([feature for feature in ABLE if feature.name not in but])
    in_turns(both, everything, f"main.all_{layout[:4]}")


@pytest.mark.slow
def test_features_of_a_protocol_that_lists_none_are_known_by_the_columns(both: dict[str, Session]) -> None:
    name = "main.legacy"
    location = both["duckdb"].ref(name).location
    write_deltalake(location, pa.table({"id": [1], "x": [2]}))
    log = Path(location, "_delta_log", f"{0:020d}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:  # as Spark wrote it before there were features
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 4}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][1]["metadata"] = {"delta.generationExpression": "id * 2"}
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    for session in both.values():
        with pytest.raises(DuckrunError, match=name):
            session.execute(name, WriteSpec("append"), pa.table({"id": [2], "x": [5]}))
    both["spark"].execute(name, WriteSpec("append"), pa.table({"id": [2]}))
    both["duckdb"].execute(name, WriteSpec("append"), pa.table({"id": [3]}))
    for session in both.values():
        assert rows_of(session.scan(name)) == [(1, 2), (2, 4), (3, 6)]


@pytest.mark.matrix
@pytest.mark.whole
def test_the_page_shows_what_was_found(found: Found) -> None:
    cells = len(FEATURES) * len(ENGINES) * (1 + len(STEPS))
    assert len(found) == cells, "the page is of the whole matrix: run all of this file"
    text = wrapped(page(found))
    if os.environ.get("DUCKRUN_WRITE_PAGES"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, f"{PAGE.name} differs: run this with DUCKRUN_WRITE_PAGES=1"
