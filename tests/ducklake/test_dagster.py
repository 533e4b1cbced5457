"""Assets as tables of a DuckLake: what the IO manager writes and reads, by plain DuckDB too; lakes of both formats in one project."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import polars as pl
import pyarrow as pa
import pytest
import yaml
from dagster._core.definitions.observe import observe
from dagster.components.testing import create_defs_folder_sandbox

import duckrun
from duckrun import UnsupportedFeature
from duckrun.errors import InvalidConfig
from duckrun.storage.extensions import extension_path
from duckrun_dagster import (
    DeltaIOManager,
    DuckrunDbtCliResource,
    DuckrunLakeComponent,
    DuckrunResource,
    LakeConfig,
    check_definitions,
    observable_table,
    publish_together,
    table_checks,
)

pytestmark = pytest.mark.drawn(3)
ROWS = pa.table({"id": [1, 2, 3], "item": ["fig", "kiwi", None]})


class Shop:
    """A DuckLake, another lake of Delta tables, and what runs on both."""

    def __init__(self, root: Path) -> None:
        self.root = root / "lake"
        self.catalog = self.root / "catalog.sqlite"
        self.instance = dg.DagsterInstance.ephemeral()
        self.lake = DuckrunResource(
            root_path=str(self.root), format="ducklake", lakes={"old": LakeConfig(root_path=str(root / "delta"))}
        )

    def run(self, assets: Sequence[Any], *, fails: bool = False, **arguments: Any) -> dg.ExecuteInProcessResult:
        settings = arguments.pop("settings", {})
        resources = {"duckrun": self.lake, "io_manager": DeltaIOManager(duckrun=self.lake, schema="shop", **settings)}
        result = dg.materialize(
            assets, instance=self.instance, resources=resources, raise_on_error=not fails, **arguments
        )
        assert result.success is not fails
        return result

    def error(self, assets: Sequence[Any], **arguments: Any) -> str:
        result = self.run(assets, fails=True, **arguments)
        error = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
        return str((error.cause or error).message if error else "")

    def plain(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows by DuckDB and its extension alone."""
        with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as alone:
            for name in ("ducklake", "sqlite_scanner"):
                alone.execute(f"LOAD '{extension_path(name)}'")
            alone.execute(f"ATTACH 'ducklake:sqlite:{self.catalog}' AS lake (READ_ONLY)")
            alone.execute("USE lake")
            return alone.execute(sql).fetchall()

    def snapshots(self) -> int:
        return int(self.plain("SELECT count(*) FROM ducklake_snapshots('lake')")[0][0])

    def materialized(self, result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
        events = [event for event in result.all_events if event.event_type_value == "ASSET_MATERIALIZATION"]
        return {
            event.asset_key.to_user_string(): {
                k: getattr(v, "value", v) for k, v in event.materialization.metadata.items()
            }
            for event in events
            if event.asset_key is not None
        }


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def asset_of(name: str, value: Callable[[], Any], **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name, metadata=metadata)
    def asset() -> Any:
        return value()

    return asset


# -- types, modes, partitions


KINDS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: ROWS,
    "pyarrow_reader": lambda: ROWS.to_reader(),
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars_lazy": lambda: pl.DataFrame(ROWS).lazy(),
    "duckdb": lambda: duckdb.sql("select 1 as id, 'fig' as item union all values (2, 'kiwi'), (3, null)"),
    "rows": lambda: ROWS.to_pylist(),
}


def test_each_type_is_written_and_read(shop: Shop) -> None:
    seen: dict[str, Any] = {}

    def reader(kind: str) -> dg.AssetsDefinition:
        @dg.asset(
            name=f"of_{kind}",
            ins={"fruit": dg.AssetIn(kind, metadata={"type": kind, "columns": ["item", "id"], "predicate": "id > 1"})},
        )
        def read(fruit) -> None:
            if kind == "rows":
                fruit = pa.Table.from_pylist(fruit)
            found = fruit.to_arrow_table() if kind == "duckdb" else duckdb.sql("from fruit").to_arrow_table()
            assert found.column_names == ["item", "id"]
            seen[kind] = sorted((row["id"], row["item"]) for row in found.to_pylist())

        return read

    shop.run([*(asset_of(kind, value) for kind, value in KINDS.items()), *map(reader, KINDS)])
    assert seen == dict.fromkeys(KINDS, [(2, "kiwi"), (3, None)])
    for kind in KINDS:
        assert shop.plain(f"FROM shop.{kind} ORDER BY id") == [(1, "fig"), (2, "kiwi"), (3, None)]


def test_frames_and_tables_of_the_session_are_read_at_versions(shop: Shop) -> None:
    seen: list[Any] = []
    shop.run([asset_of("fruit", lambda: ROWS)])
    first = shop.lake.lake().snapshot(shop.lake.lake().resolve("shop", "fruit")).version
    shop.run([fruit := asset_of("fruit", lambda: ROWS.slice(1))])

    @dg.asset(ins={"fruit": dg.AssetIn(metadata={"type": "duckrun", "version": first})})
    def then(fruit) -> None:
        seen.append(fruit.count())

    @dg.asset(ins={"fruit": dg.AssetIn(metadata={"type": "duckrun_table"})})
    def now(fruit) -> None:
        seen.append(fruit.toDF().count())
        assert fruit.snapshot().version > first

    shop.run([fruit, then, now])
    assert sorted(seen) == [2, 3]


def test_what_needs_files_of_delta_is_refused_by_name(shop: Shop) -> None:
    def reads(kind: str) -> str:
        @dg.asset(ins={"fruit": dg.AssetIn(metadata={"type": kind})})
        def reader(fruit) -> None: ...

        return shop.error([fruit, reader])

    fruit = asset_of("fruit", lambda: ROWS)
    assert "DuckLake" in reads("deltalake")


def test_merge_append_and_new_columns(shop: Shop) -> None:
    rows = [ROWS]
    fruit = asset_of("fruit", lambda: rows[0], merge_keys="id", schema_mode="append_new_columns")
    shop.run([fruit])
    rows[0] = pa.table({"id": [2, 9], "item": ["lime", "nut"], "price": [1.5, 2.5]})
    told = shop.materialized(shop.run([fruit]))["fruit"]
    assert (told["rows_inserted"], told["rows_updated"], told["rows_deleted"]) == (1, 1, 0)
    assert shop.plain("FROM shop.fruit ORDER BY id") == [
        (1, "fig", None),
        (2, "lime", 1.5),
        (3, None, None),
        (9, "nut", 2.5),
    ]
    assert "append_new_columns" in shop.error(
        [asset_of("fruit", lambda: rows[0].append_column("x", [[1, 2]]), mode="append")]
    )


@pytest.mark.parametrize("layout", [{}, {"partition_by": ["month(day)", "bucket(4, id)"]}])
def test_a_partition_replaces_itself_alone(shop: Shop, layout: dict[str, Any]) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day", **layout})
    def visits(context) -> pa.Table:
        day = datetime.date.fromisoformat(context.partition_key)
        return pa.table({"id": [1, 2], "day": [day, day], "run": [context.run_id] * 2})

    keys = days.get_partition_keys()
    for key in keys:
        shop.run([visits], partition_key=key)
    told = shop.materialized(again := shop.run([visits], partition_key=keys[1]))["visits"]
    of_run = f"count(*) FILTER (WHERE run = '{again.run_id}')"
    found = shop.plain(f"SELECT CAST(day AS VARCHAR), count(*), {of_run} FROM shop.visits GROUP BY 1 ORDER BY 1")
    assert found == [("2026-01-01", 2, 0), ("2026-01-02", 2, 2), ("2026-01-03", 2, 0)]
    assert told["dagster/partition_row_count"] == 2 and told["dagster/row_count"] == 6


def test_metadata_shows_the_snapshot_of_the_lake(shop: Shop) -> None:
    told = shop.materialized(shop.run([asset_of("fruit", lambda: ROWS)]))["fruit"]
    newest = shop.plain("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")[0][0]
    assert told["snapshot_id"] == told["version"] == newest
    assert told["catalog"] == f"sqlite:{shop.catalog}" and told["dagster/storage_kind"] == "ducklake"
    assert (told["dagster/row_count"], told["writer"]) == (3, "ducklake")
    assert "dagster/uri" not in told and "| fig |" in told["preview"]


def test_a_retried_run_writes_once(shop: Shop) -> None:
    fruit, attempts = asset_of("fruit", lambda: ROWS, mode="append"), []

    @dg.asset(deps=[fruit])
    def after() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")

    defs = dg.Definitions([fruit, after], resources={"io_manager": DeltaIOManager(duckrun=shop.lake, schema="shop")})
    job = defs.get_implicit_global_asset_job_def()
    first = job.execute_in_process(instance=shop.instance, raise_on_error=False)
    assert not first.success
    tags = {
        "dagster/parent_run_id": first.run_id,
        "dagster/root_run_id": first.run_id,
        "dagster/is_resume_retry": "true",
    }
    again = job.execute_in_process(instance=shop.instance, tags=tags)
    assert shop.materialized(again)["fruit"]["rows_inserted"] == 3
    assert shop.plain("SELECT count(*) FROM shop.fruit") == [(3,)]


# -- data versions, checks, sources


def test_data_versions_move_with_the_rows_alone(shop: Shop) -> None:
    source = observable_table(["shop", "fruit"])

    def observed() -> str:
        observe([source], resources={"duckrun": shop.lake}, instance=shop.instance)
        record = shop.instance.get_latest_data_version_record(source.key, is_source=True)
        return record.event_log_entry.tags["dagster/data_version"]

    shop.run([asset_of("fruit", lambda: ROWS), asset_of("other", lambda: ROWS)])
    first = observed()
    with duckrun.connect(shop.root, format="ducklake") as session:
        session.sql("insert into shop.other values (9, 'nut')")
        session.sql("comment on table shop.fruit is 'what there is'")
        assert observed() == first
        session.sql("delete from shop.fruit where id = 1")
    assert observed() != first


def test_checks_of_a_table(shop: Shop) -> None:
    fruit = asset_of("fruit", lambda: ROWS)
    checks = table_checks(
        "fruit", min_rows=1, not_null=["item"], max_age=datetime.timedelta(hours=1), metadata={"schema": "shop"}
    )
    result = shop.run([fruit, checks], fails=False)
    passed = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert passed == {
        "schema_is_unchanged": True,
        "row_count_is_within_bounds": True,
        "not_null_item": False,
        "is_fresh": True,
    }


# -- two lakes


def test_assets_name_another_lake_of_another_format(shop: Shop, tmp_path: Path) -> None:
    @dg.asset(metadata={"lake": "old"})
    def legacy() -> pa.Table:
        return ROWS

    @dg.asset
    def fruit(legacy: pa.Table) -> pa.Table:
        return legacy

    @dg.asset(metadata={"lake": "old", "format": "delta"})
    def back(duckrun: DuckrunResource, fruit: pl.DataFrame) -> pl.DataFrame:
        rows = duckrun.session().sql("select count(*) as n from shop.fruit join old.shop.legacy using (id)").collect()
        return fruit.with_columns(n=rows[0]["n"])

    told = shop.materialized(shop.run([legacy, fruit, back]))
    assert told["legacy"]["dagster/storage_kind"] == "deltalake" and told["fruit"]["dagster/storage_kind"] == "ducklake"
    assert (tmp_path / "delta" / "shop" / "back" / "_delta_log").is_dir()
    with duckrun.connect(tmp_path / "delta") as session:
        assert session.sql("select max(n) as n, count(*) as rows from shop.back").collect() == [{"n": 3, "rows": 3}]


# -- what is refused


def definitions(assets: Sequence[Any], lake: DuckrunResource, **more: Any) -> dg.Definitions:
    return dg.Definitions(assets=assets, resources={"io_manager": DeltaIOManager(duckrun=lake, schema="shop")}, **more)


@pytest.mark.parametrize(
    ("metadata", "error", "said"),
    [
        ({"lake": "old", "format": "ducklake"}, InvalidConfig, "the format belongs to a lake"),
        ({"format": "delta"}, InvalidConfig, "of format ducklake"),
        ({"format": "ducklak"}, InvalidConfig, "Did you mean 'ducklake'"),
        ({"lake": "odl"}, InvalidConfig, "id you mean 'old'"),
        ({"lake": "old", "publish": "together"}, UnsupportedFeature, "a log of its own"),
        ({"location": "elsewhere"}, UnsupportedFeature, "the catalog says"),
        ({"cluster_by": ["id"]}, UnsupportedFeature, "sort_by"),
        (
            {"table_properties": {"delta.appendOnly": "true"}},
            UnsupportedFeature,
            "delta.appendOnly is a property of Delta",
        ),
    ],
)
def test_words_of_another_format_are_refused_when_definitions_load_and_when_they_run(
    shop: Shop, metadata: dict[str, Any], error: type[Exception], said: str
) -> None:
    asset = asset_of("fruit", lambda: ROWS, **metadata)
    with pytest.raises(error, match=said) as raised:
        check_definitions(definitions([asset], shop.lake))
    assert "fruit" in str(raised.value)
    assert said in shop.error([asset])
    assert not shop.catalog.exists() and not (shop.root.parent / "delta").exists()


def test_a_format_that_an_environment_decides_is_checked_when_it_runs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_FORMAT", "delta")
    lake = DuckrunResource(root_path=str(shop.root), format=dg.EnvVar("LAKE_FORMAT"))
    asset = asset_of("fruit", lambda: ROWS, format="ducklake")
    check_definitions(definitions([asset], lake))
    shop.lake = lake
    assert "the format belongs to a lake" in shop.error([asset])


SECRET = "postgres:dbname=lake host=localhost port=1 password=s3cr3t"


def test_the_password_of_a_catalog_is_shown_nowhere(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = DuckrunResource(
        root_path=str(shop.root),
        format="ducklake",
        catalog=SECRET,
        lakes={"b": {"root_path": "b/", "format": "ducklake", "catalog": "postgresql://me:s3cr3t@host/db"}},
    )
    asset = asset_of("fruit", lambda: ROWS)
    defs = check_definitions(definitions([asset], lake))
    shown = [
        repr(lake),
        str(lake),
        str(defs.resources),
        str(lake.get_resource_definition().config_schema.default_value),
    ]
    shop.lake = lake
    assert "catalog postgres:dbname=lake host=localhost port=1 password=***" in (said := shop.error([asset]))
    events = [str(entry) for entry in shop.instance.all_logs(shop.instance.get_runs()[0].run_id)]
    shown += [said, *events, *capfd.readouterr()]
    assert not [text for text in shown if "s3cr3t" in text]
    with pytest.raises(InvalidConfig, match="names no database") as raised:
        DuckrunResource(root_path="x", format="ducklake", catalog=SECRET.replace("postgres:", "pgsql:"))
    assert "s3cr3t" not in str(raised.value)


def test_a_catalog_comes_from_the_environment(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CATALOG", f"sqlite:{tmp_path}/elsewhere.sqlite")
    shop.lake = DuckrunResource(root_path=str(shop.root), format="ducklake", catalog=dg.EnvVar("CATALOG"))
    shop.run([asset_of("fruit", lambda: ROWS)])
    shop.catalog = tmp_path / "elsewhere.sqlite"
    assert shop.plain("SELECT count(*) FROM shop.fruit") == [(3,)]


def test_a_lake_in_yaml(shop: Shop, tmp_path: Path) -> None:
    attributes = {
        "root_path": str(shop.root),
        "format": "ducklake",
        "catalog": f"sqlite:{tmp_path}/c.sqlite",
        "lakes": {"old": {"root_path": str(tmp_path / "delta")}},
    }
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=DuckrunLakeComponent)
        text = {"type": "duckrun_dagster.DuckrunLakeComponent", "attributes": attributes}
        (path / "defs.yaml").write_text(yaml.safe_dump(text))
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            resources = dict(defs.resources or {})
    shop.lake, shop.catalog = resources["duckrun"], tmp_path / "c.sqlite"
    shop.run([asset_of("fruit", lambda: ROWS), asset_of("leaf", lambda: ROWS, lake="old")])
    assert shop.plain("SELECT count(*) FROM shop.fruit") == [(3,)] and (tmp_path / "delta" / "shop" / "leaf").is_dir()


def test_the_lake_of_a_dbt_profile(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: p\nprofile: p\n")
    (tmp_path / "profiles.yml").write_text(
        "p: {target: dev, outputs: {dev: {type: duckrun, root_path: lake, format: ducklake, catalog: 'sqlite:cat.sqlite', inline_rows: 10,\n"
        "  lakes: {old: {root_path: delta}}}}}\n"
    )
    lake = DuckrunResource(project_dir=str(tmp_path))
    with pytest.raises(InvalidConfig, match="'format' is 'delta'"):
        check_definitions(definitions([asset_of("fruit", lambda: ROWS, format="delta")], lake))
    shop.lake, shop.catalog = lake, tmp_path / "cat.sqlite"
    told = shop.materialized(shop.run([asset_of("fruit", lambda: ROWS), asset_of("leaf", lambda: ROWS, lake="old")]))
    assert shop.plain("SELECT count(*) FROM shop.fruit") == [(3,)]
    assert (told["fruit"]["table_files"], told["fruit"]["dagster/row_count"]) == (0, 3)
    assert told["leaf"]["dagster/storage_kind"] == "deltalake"


# -- a catalog that one process may have open


def test_a_catalog_in_a_duckdb_file_serves_a_run_of_one_process(shop: Shop, tmp_path: Path) -> None:
    shop.lake = DuckrunResource(
        root_path=str(shop.root), format="ducklake", catalog=f"duckdb:{tmp_path}/catalog.duckdb"
    )

    @dg.asset
    def after(duckrun: DuckrunResource, fruit: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame(duckrun.session().sql("from shop.fruit where id > 1").toArrow())

    shop.run([asset_of("fruit", lambda: ROWS), after])
    lake = shop.lake.lake()
    assert lake.snapshot(lake.resolve("shop", "after")).schema.names == ["id", "item"]


def test_a_catalog_in_a_duckdb_file_is_refused_for_several_processes(tmp_path: Path) -> None:
    lake = DuckrunResource(root_path=str(tmp_path), format="ducklake", catalog=f"duckdb:{tmp_path}/catalog.duckdb")
    with pytest.raises(InvalidConfig, match="SQLite .* or PostgreSQL"):
        check_definitions(definitions([asset_of("fruit", lambda: ROWS)], lake, executor=dg.multiprocess_executor))
    check_definitions(definitions([asset_of("fruit", lambda: ROWS)], lake, executor=dg.in_process_executor))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_steps_in_processes_of_their_own(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PARALLEL_STEPS_LAKE", str(shop.root))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    catalog = f"{kind}:{shop.catalog}"
    job = dg.build_reconstructable_job("tests.ducklake.parallel_steps", "job", reconstructable_args=(catalog,))
    (tmp_path / "dagster").mkdir()
    instance = dg.DagsterInstance.local_temp(str(tmp_path / "dagster"))
    with dg.execute_job(job, instance=instance) as result:
        assert result.success is (kind == "sqlite")
        failed = [event for event in result.all_events if event.is_step_failure]
    if kind == "sqlite":
        assert shop.plain("SELECT step FROM main.shared ORDER BY 1") == [("one",), ("two",)]
    else:
        said = {str(event.step_failure_data.error.cause.message) for event in failed}
        assert len(failed) == 2 and all("SQLite (sqlite:<file>) or PostgreSQL" in text for text in said)
        assert not shop.catalog.exists()


def test_dbt_beside_the_io_manager_is_refused_a_catalog_in_a_duckdb_file(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: p\nprofile: p\n")
    place = "{type: duckrun, root_path: lake, format: ducklake, catalog: 'duckdb:catalog.duckdb'}"
    (tmp_path / "profiles.yml").write_text(f"p: {{target: dev, outputs: {{dev: {place}}}}}\n")

    @dg.asset
    def models(context) -> None:
        DuckrunDbtCliResource(project_dir=str(tmp_path)).cli(["build"], context=context)

    assert "SQLite (sqlite:<file>) or PostgreSQL" in shop.error([models])


# -- published together


def sales(step: Callable[[int], Iterator[Any]], **metadata: Any) -> dg.AssetsDefinition:
    """A multi-asset of two tables with a check of its own that blocks."""

    @dg.multi_asset(
        outs={name: dg.AssetOut(key=["shop", name], metadata=metadata) for name in ("orders", "totals")},
        check_specs=[dg.AssetCheckSpec("adds_up", asset=["shop", "totals"], blocking=True)],
    )
    def both() -> Any:
        yield from step(0)

    return both


def given(good: bool = True) -> Callable[[int], Iterator[Any]]:
    def step(_: int) -> Iterator[Any]:
        yield dg.Output(ROWS, "orders")
        yield dg.AssetCheckResult(passed=good, asset_key=["shop", "totals"], check_name="adds_up")
        yield dg.Output(pl.DataFrame({"n": [3]}).lazy(), "totals")

    return step


def test_tables_published_together_are_one_snapshot(shop: Shop) -> None:
    shop.run([publish_together(sales(given()))])
    before = shop.snapshots()
    told = shop.materialized(shop.run([publish_together(sales(given()))]))
    assert shop.snapshots() == before + 1
    assert told["shop/orders"]["version"] == told["shop/totals"]["version"]
    assert (told["shop/orders"]["rows_inserted"], told["shop/totals"]["dagster/row_count"]) == (3, 1)
    assert shop.plain("SELECT (SELECT count(*) FROM shop.orders), (SELECT n FROM shop.totals)") == [(3, 3)]


def test_check_definitions_publishes_together_what_asks_for_it(shop: Shop) -> None:
    asset = sales(given(), publish="together")
    assert "publish_together" in shop.error([asset])
    assert not shop.catalog.exists() or shop.plain("FROM duckdb_tables() WHERE schema_name = 'shop'") == []
    defs = check_definitions(definitions([asset], shop.lake))
    job = defs.get_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=shop.instance).success
    versions = shop.plain(
        "SELECT count(DISTINCT snapshot) FROM _duckrun.applied WHERE name IN ('shop.orders', 'shop.totals')"
    )
    assert versions == [(1,)]


def test_nothing_is_published_of_what_failed(shop: Shop) -> None:
    def fails(_: int) -> Iterator[Any]:
        yield dg.Output(ROWS, "orders")
        raise ZeroDivisionError("no totals")

    def misfits(_: int) -> Iterator[Any]:
        yield dg.Output(pa.table({"id": [9], "item": ["nut"]}), "orders")
        yield dg.AssetCheckResult(passed=True, asset_key=["shop", "totals"], check_name="adds_up")
        yield dg.Output(pa.table({"other": [1]}), "totals")

    def lacks(_: int) -> Iterator[Any]:
        yield dg.Output(ROWS, "orders")
        yield dg.AssetCheckResult(passed=True, asset_key=["shop", "totals"], check_name="adds_up")

    shop.run([publish_together(sales(given()))])
    before = shop.snapshots()
    for step, said in (
        (fails, "no totals"),
        (given(good=False), "shop/totals adds_up. Nothing of both was published"),
        (misfits, "totals"),
        (lacks, "gave no totals"),
    ):
        mode = {"mode": "append"} if step is misfits else {}
        result = shop.run([publish_together(sales(step, **mode))], fails=True)
        assert shop.materialized(result) == {}
        assert said in str([e.step_failure_data.error for e in result.all_events if e.is_step_failure])
        assert shop.snapshots() == before


def test_readers_see_both_tables_or_none(shop: Shop) -> None:
    shop.run([publish_together(sales(given()))])
    with duckrun.connect(shop.root, format="ducklake") as reader:
        seen = []

        class Watching(DeltaIOManager):
            def write(self, context: Any, obj: Any, **more: Any) -> Any:
                report = super().write(context, obj, **more)
                seen.append(
                    reader.sql(
                        "select (select count(*) from shop.orders) as a, (select max(n) from shop.totals) as b"
                    ).collect()
                )
                return report

        def doubled(_: int) -> Iterator[Any]:
            yield dg.Output(pa.concat_tables([ROWS, ROWS]), "orders")
            yield dg.AssetCheckResult(passed=True, asset_key=["shop", "totals"], check_name="adds_up")
            yield dg.Output(pl.DataFrame({"n": [6]}), "totals")

        manager = Watching(duckrun=shop.lake, schema="shop")
        dg.materialize([publish_together(sales(doubled))], resources={"io_manager": manager}, instance=shop.instance)
        assert seen == [[{"a": 3, "b": 3}]] * 2
        assert reader.sql(
            "select (select count(*) from shop.orders) as a, (select max(n) from shop.totals) as b"
        ).collect() == [{"a": 6, "b": 6}]


def test_the_outputs_of_an_op_are_published_together(shop: Shop) -> None:
    outs = {name: dg.Out(metadata={"schema": "shop", "table": name}) for name in ("orders", "totals")}
    op = publish_together(dg.op(name="both", out=outs)(lambda: (ROWS, pl.DataFrame({"n": [3]}))))

    @dg.job(resource_defs={"io_manager": DeltaIOManager(duckrun=shop.lake)})
    def job() -> None:
        op()

    assert job.execute_in_process(instance=shop.instance).success
    found = shop.plain("SELECT count(DISTINCT snapshot), count(*) FROM _duckrun.applied")
    assert found == [(1, 2)]


def test_what_cannot_be_published_together(shop: Shop) -> None:
    @dg.graph_asset
    def graph() -> Any:
        return dg.op(name="inner")(lambda: 1)()

    with pytest.raises(UnsupportedFeature, match="Make it a multi_asset"):
        publish_together(graph)
    mixed = publish_together(
        dg.multi_asset(
            name="mixed",
            outs={"a": dg.AssetOut(key=["shop", "a"]), "b": dg.AssetOut(key=["shop", "b"], metadata={"lake": "old"})},
        )(lambda: (ROWS, ROWS))
    )
    assert "2 lakes" in shop.error([mixed])
