"""A checkpoint that one engine wrote is all that the other has of what came before: rows and their ids, vectors, mapped names, partitions and clusters,
domains, applied transactions; and on it the other writes on, and writes the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import SQL, AppTransaction, Session, WriteSpec
from duckrun.formats.delta.versions.domains import domains_of
from tests.engines.spark_checks import CHECKS, WITHIN_RETENTION, check_skipping, forget, read, set_to
from tests.lake import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
ROW_IDS = "id, _metadata.row_id, _metadata.row_commit_version"
LAYOUTS = {"partitioned": ("partitioned by (part)", "id"), "clustered": ("cluster by (id)", "name")}
KINDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "classic": ({"checkpointPolicy": "classic"}, {}),
    "in parts": ({"checkpointPolicy": "classic"}, {"checkpoint.partSize": "2"}),
    "statistics as a struct": ({"checkpoint.writeStatsAsJson": "false", "checkpoint.writeStatsAsStruct": "true"}, {}),
    "v2, json": ({"checkpointPolicy": "v2"}, {"checkpointV2.topLevelFileFormat": "json", "checkpoint.partSize": "2"}),
    "v2, parquet": (
        {"checkpointPolicy": "v2", "checkpoint.writeStatsAsJson": "false", "checkpoint.writeStatsAsStruct": "true"},
        {"checkpointV2.topLevelFileFormat": "parquet", "checkpoint.partSize": "2"},
    ),
}
"""Properties of the table, and settings of Spark's, which then writes several sidecars."""
OTHER = {"duckdb": "spark", "spark": "duckdb"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake, while Spark checks what it reads and what it commits."""
    root = tmp_path_factory.mktemp("checkpoints") / "lake"
    with (
        set_to(spark, CHECKS | WITHIN_RETENTION),
        duckrun.connect(root) as duck,
        duckrun.connect(root, engine="spark", spark=spark) as other,
    ):
        yield {"duckdb": duck, "spark": other}


@dataclass
class Table:
    """A table that both engines write, and what is to be in it."""

    both: dict[str, Session]
    spark: Any
    name: str
    layout: str
    rows: dict[int, str] = field(default_factory=dict)
    ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    applied: int = 0

    @property
    def path(self) -> Path:
        return Path(self.both["duckdb"].ref(self.name).location)

    @property
    def log(self) -> Path:
        return self.path / "_delta_log"

    @property
    def version(self) -> int:
        return self.both["duckdb"].snapshot(self.name).version

    def sql(self, engine: str, text: str) -> None:
        self.both[engine].sql(text.replace("{t}", self.name), dialect="spark")

    def create(self, engine: str, properties: dict[str, str]) -> None:
        laid_out, mode = LAYOUTS[self.layout]
        properties = {
            "columnMapping.mode": mode,
            "enableRowTracking": "true",
            "enableDeletionVectors": "true",
            "checkpointInterval": "2",
            **properties,
        }
        said = ", ".join(f"'delta.{key}' = '{value}'" for key, value in properties.items())
        columns = "id bigint, old string, part string, s struct<`a b`: bigint>"
        self.sql(engine, f"create table {{t}} ({columns}) using delta {laid_out} tblproperties ({said})")

    def insert(self, engine: str, *ids: int, v: str = "v") -> None:
        rows = ", ".join(f"({i}, 'n{i}', 'é {i % 2}', named_struct('a b', {i}))" for i in ids)
        self.sql(engine, f"insert into {{t}} (id, {v}, part, s) values {rows}")
        self.rows |= {i: f"n{i}" for i in ids}

    def change(self, engine: str, first: int) -> None:
        """Rows come, go and change, in files of which some rows are gone before."""
        self.applied += 1
        row = f"select {first}L as id, 'load' as v, 'é {first % 2}' as part, named_struct('a b', {first}L) as s"
        spec = WriteSpec("append", app=AppTransaction("load", self.applied))
        self.both[engine].execute(self.name, spec, SQL(row, "spark"))
        self.rows[first] = "load"
        self.insert(engine, *range(first + 1, first + 6))
        gone = [first + 1, *[i for i in self.rows if i < first][:1]]
        self.sql(engine, f"delete from {{t}} where id in ({', '.join(map(str, gone))})")
        self.rows = {i: v for i, v in self.rows.items() if i not in gone}
        changed = [first + 2, *[i for i in self.rows if i < first][1:2]]
        self.sql(engine, f"update {{t}} set v = 'u' where id in ({', '.join(map(str, changed))})")
        self.rows |= dict.fromkeys(changed, "u")

    def add_domains(self) -> None:
        """Of a system of which neither engine knows; one is taken away again."""
        for more in ([("own.one", False), ("own.two", False)], [("own.two", True)]):
            forget(self.spark)
            actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "OWN"}}]
            actions += [
                {"domainMetadata": {"domain": domain, "configuration": '{"n": 1}', "removed": removed}}
                for domain, removed in more
            ]
            commit = self.log / f"{self.version + 1:020d}.json"
            commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        forget(self.spark)

    def strip(self, engine: str) -> list[str]:
        """An engine makes its checkpoint, and no older commit is left, nor what Spark would believe in their place. Returns the checkpoint's files."""
        while self.version % 2:
            self.insert(engine, max(self.rows) + 1)
        version = self.version
        made = sorted(path.name for path in self.log.glob(f"{version:020d}.checkpoint.*"))
        assert made, f"{engine} made no checkpoint of version {version}: {sorted(p.name for p in self.log.iterdir())}"
        for path in self.log.iterdir():
            stem = path.name[:20]
            if path.suffix == ".crc" or (stem.isdigit() and int(stem) < version):
                path.unlink()
        if version % 4:  # a hint that need not be there
            (self.log / "_last_checkpoint").unlink()
        forget(self.spark)
        return made

    def check(self) -> None:
        """Both engines, opened anew, and Spark without our code have what is to be there; rows that stay have the ids that they had."""
        wanted = sorted((i, v, f"é {i % 2}", i) for i, v in self.rows.items())
        with duckrun.connect(self.both["duckdb"].lake.root) as fresh:
            ours = fresh.sql(f'select id, v, part, s."a b" as n from {self.name}')
            assert sorted(rows_of(ours)) == wanted
            form, snapshot = fresh.lake.format, fresh.snapshot(self.name)
            assert form.app_version(snapshot.ref, "load") == self.applied
            domains = domains_of(form, snapshot)  # type: ignore[arg-type]
            tracked = fresh.table(self.name).toDF(row_ids=True).toArrow().to_pylist()
            replayed = fresh.execute(
                self.name, WriteSpec("append", app=AppTransaction("load", self.applied)), SQL("select 1/0 as id")
            )
            assert replayed.replayed
        assert sorted(read(self.spark, self.path, "id, v, part, s.`a b`", anew=True)) == wanted
        ids = {i: (row_id, at) for i, row_id, at in read(self.spark, self.path, ROW_IDS)}
        assert ids == {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in tracked}
        assert len({row_id for row_id, _ in ids.values()}) == len(ids) == len(wanted)
        assert all(ids[i][0] == row_id for i, (row_id, _) in self.ids.items() if i in ids)
        self.ids = ids
        theirs = self._of_spark()
        assert theirs == (domains, self.applied)
        assert domains["own.one"] == '{"n": 1}' and "own.two" not in domains
        assert ("delta.clustering" in domains) == (self.layout == "clustered")
        assert [".".join(path) for path in snapshot.cluster_by] == (["id"] if self.layout == "clustered" else [])
        assert snapshot.partition_columns == (("part",) if self.layout == "partitioned" else ())

    def _of_spark(self) -> tuple[dict[str, str], int]:
        """The domains, and the count of the application, as delta-spark's own snapshot has them."""
        log = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, str(self.path))
        state = log.unsafeVolatileSnapshot()
        found = [state.domainMetadata().apply(n) for n in range(state.domainMetadata().size())]
        return {each.domain(): each.configuration() for each in found}, state.transactions().apply("load")


@pytest.mark.drawn(20)  # half of the runs take none
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maker", OTHER)
def test_the_other_engine_goes_on_from_a_checkpoint(
    both: dict[str, Session], spark: Any, maker: str, kind: str
) -> None:
    properties, settings = KINDS[kind]
    layout = list(LAYOUTS)[(list(KINDS).index(kind) + list(OTHER).index(maker)) % 2]
    table = Table(both, spark, f"main.t_{maker}_{list(KINDS).index(kind)}_{layout}", layout)
    with set_to(spark, settings):
        table.create(maker, properties)
        table.insert(maker, 0, 1, 2, 3, v="old")
        table.sql(maker, "alter table {t} rename column old to v")
        table.add_domains()
        for engine, low in ((maker, 20), (OTHER[maker], 30)):
            table.change(engine, low)
            made = table.strip(engine)
            if engine == "spark":
                assert ("v2" in kind) == all(len(name) > 70 for name in made), made
                assert (kind == "in parts") == (len(made) > 1), made
            table.check()
        check_skipping(
            spark,
            table.path,
            ["id >= 40", "v = 'u'", "part = 'é 1'", "s.`a b` < 3", "v is null", "id = 22"],
            marked=True,
        )
    if "v2" in kind:
        assert list((table.log / "_sidecars").glob("*.parquet")), "Spark's checkpoints have sidecars"
