"""One life of a job: its runs, retries and re-executions, and what others do to its tables in between."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, get_args

import dagster as dg
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.state import KnownExecutionState

import duckrun
from duckrun import OptimizeSpec
from tests.lives.jobs import PARTITIONS, Asset, Attempt, Failure, Job, Kind, Out, job_of
from tests.lives.model import Model

IN_PROCESS = {"execution": {"config": {"in_process": {}}}}
PROCESSES = {"execution": {"config": {"multiprocess": {"max_concurrent": 2}}}}
CONTINUES = ("retry", "retry all", "from failure", "from failure by API", "from asset failure")
AGAIN = (*CONTINUES, "all", "all by API")


def drawn_job(rng: Random, format: str = "delta", engine: str = "duckdb", most: int = 4) -> Job:
    """A job of two to four steps; some write one table together, some two tables each."""
    assets: list[Asset] = []
    for number in range(rng.randint(2, most)):
        name = f"s{number}"
        kind: Kind = rng.choice(get_args(Kind))
        outs = [Out(f"{name}_x", f"t{number}", kind)]
        shares = [out for each in assets for out in each.outs if out.kind == "append"]
        if shares and rng.random() < 0.4:
            outs = [Out(f"{name}_x", rng.choice(shares).table, "append")]
        if rng.random() < 0.4 and not outs[0].is_partitioned:
            second: Kind = rng.choice(("overwrite", "append", "merge"))
            outs.append(Out(f"{name}_y", outs[0].table if outs[0].kind == "append" == second else f"u{number}", second))
        deps = tuple(each.outs[0].name for each in assets if rng.random() < 0.3)
        assets.append(Asset(name, tuple(outs), deps, rng.choice((0, 0, 1, 2))))
    return Job(tuple(assets), format, engine)


@dataclass
class Life:
    """A job in a folder, Dagster's memory of its runs, and the model that goes with them."""

    folder: Path
    job: Job
    rng: Random
    processes: bool = False
    chains: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """What happened, for the message of a failure."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "job.json").write_text(self.job.to_json())
        if self.processes:
            (self.folder / "dagster").mkdir()
            self.instance = dg.DagsterInstance.local_temp(str(self.folder / "dagster"))
        else:
            self.instance = dg.DagsterInstance.ephemeral()
        self.definition = job_of(str(self.folder))
        self.model = Model(compares=self.job.format == "delta")
        self.rows: dict[str, dict[str, list[tuple[int, int]]]] = {}
        self.told.append(self.job.to_json())

    def live(self, runs: int) -> None:
        """So many runs, each new or one of an earlier run again; ends with a run in which nothing fails."""
        parent: dg.DagsterRun | None = None
        for number in range(runs):
            how = "new" if parent is None else self.rng.choice((*AGAIN, *CONTINUES, "new"))
            last = number == runs - 1
            parent = self.run(how, parent, calm=last and how != "new") or parent
            if self.rng.random() < 0.4 and not last:
                self._others()
            if parent is not None and parent.is_success and self.rng.random() < 0.6:
                parent = None

    # -- runs

    def run(
        self,
        how: str,
        parent: dg.DagsterRun | None = None,
        *,
        script: dict[str, list[Attempt]] | None = None,
        calm: bool = False,
        partition: str | None = None,
    ) -> dg.DagsterRun | None:
        """Run the job in one way and hold its tables against the model. None: Dagster has nothing to run in this way."""
        script = script or {asset.name: self._attempts(asset, calm) for asset in self.job.assets}
        (self.folder / "script.json").write_text(
            json.dumps({name: [asdict(each) for each in attempts] for name, attempts in script.items()})
        )
        journal = self.folder / "journal.jsonl"
        journal.unlink(missing_ok=True)
        if how in ("all by API", "from failure by API") and parent is not None and parent.asset_selection is None:
            result = self._by_api(how, parent)
        else:
            created = self._created(how, parent, partition)
            result = created and execute_run(self._job(created), created, self.instance, raise_on_error=False)
        if result is None:
            return None
        continues = parent is not None and (how in CONTINUES or self._succeeded_in_nothing(parent))
        chain = self.chains[parent.run_id] if parent is not None and continues else result.run_id
        self.chains[result.run_id] = chain
        self.told.append(f"{how} {result.run_id[:8]} of {parent and parent.run_id[:8]}, chain {chain[:8]}")
        lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        self._check(chain, result, script, lines)
        return self.instance.get_run_by_id(result.run_id)

    def _by_api(self, how: str, parent: dg.DagsterRun) -> Any:
        """A re-execution by Dagster's Python API, which sets the parent and the root and passes no tags on."""
        options = dg.ReexecutionOptions(parent_run_id=parent.run_id)
        if how == "from failure by API":
            if not parent.is_failure:
                return None
            options = dg.ReexecutionOptions.from_failure(parent.run_id, self.instance)
        tags = {key: value for key, value in parent.tags.items() if key == "dagster/partition"}
        return dg.execute_job(self._job(None), self.instance, tags=tags, reexecution_options=options)

    def _check(self, chain: str, result: Any, script: dict[str, list[Attempt]], journal: list[dict[str, Any]]) -> None:
        assets = {asset.name: asset for asset in self.job.assets}
        expected: dict[str, bool] = {}
        for line in journal:
            asset, attempt = assets[line["asset"]], script[line["asset"]][line["attempt"]]
            well = self.model.succeeds(chain, asset, line["partition"], attempt)
            expected[asset.name] = well
            self.told.append(f"  {asset.name}[{line['partition']}] attempt {line['attempt']}: {attempt} -> {well}")
        ended = {
            event.step_key: event.is_step_success
            for event in result.all_events
            if event.is_step_success or event.is_step_failure
        }
        errors = [
            str((event.step_failure_data.error.cause or event.step_failure_data.error).message)[:300]
            for event in result.all_events
            if event.is_step_failure and event.step_failure_data.error
        ]
        message = "\n".join([*self.told, *errors])
        assert {step: well for step, well in ended.items() if step in expected} == expected, message
        rows = self.tables()
        for table, wanted in self.model.rows().items():
            assert rows.get(table, Counter()) == wanted, (
                f"{table}: {dict(rows.get(table, {}))}, wanted {dict(wanted)}\n{message}"
            )

    def tables(self) -> dict[str, Counter[Any]]:
        """The rows of each table, by a session that knows nothing of the runs."""
        found = {}
        with duckrun.connect(self.folder / "lake", format=self.job.format) as session:
            for table in {out.table for asset in self.job.assets for out in asset.outs}:
                if session.lake.exists(session.ref(table)):
                    found[table] = Counter(tuple(row.values()) for row in session.table(table).toDF().collect())
        return found

    def _created(self, how: str, parent: dg.DagsterRun | None, partition: str | None) -> dg.DagsterRun | None:
        tags: dict[str, str] = {}
        plan, assets = None, None
        if parent is None:
            if any(asset.is_partitioned for asset in self.job.assets):
                tags = {"dagster/partition": partition or self.rng.choice(PARTITIONS)}
        else:
            # The web server passes a parent's tags on, but for those of a retry.
            omitted = ("dagster/is_resume_retry", "dagster/retry_number")
            tags = {key: value for key, value in parent.tags.items() if key not in omitted}
            assets = parent.asset_selection
        config = PROCESSES if self.processes else IN_PROCESS
        if how in ("retry", "from failure", "from failure by API"):
            if parent is None or not parent.is_failure:
                return None
            steps, state = KnownExecutionState.build_resume_retry_reexecution(self.instance, parent)
            if not steps:
                return None
            plan = create_execution_plan(
                self._subset(assets), config, step_keys_to_execute=steps, known_state=state, tags=tags
            )
        if how.startswith("retry"):
            tags["dagster/retry_number"] = "1"
        if how in ("retry", "from failure"):
            tags["dagster/is_resume_retry"] = "true"
        if how == "from asset failure":
            if parent is None or parent.execution_plan_snapshot_id is None:
                return None
            snapshot = self.instance.get_execution_plan_snapshot(parent.execution_plan_snapshot_id)
            keys, _ = self.instance.run_domain.get_keys_to_reexecute(parent.run_id, snapshot)
            all_keys = assets or {dg.AssetKey([out.name]) for each in self.job.assets for out in each.outs}
            whole = {
                out.name
                for each in self.job.assets
                if any(dg.AssetKey([o.name]) in keys for o in each.outs)
                for out in each.outs
            }
            assets = frozenset(dg.AssetKey([name]) for name in whole)
            if not assets or (assets >= set(all_keys) and not self._succeeded_in_nothing(parent)):
                return None
            tags["dagster/is_asset_resume_retry"] = "true"
        return self.instance.create_run_for_job(
            self._subset(assets),
            execution_plan=plan,
            run_config=config,
            tags=tags,
            asset_selection=assets,
            root_run_id=None if parent is None else parent.root_run_id or parent.run_id,
            parent_run_id=None if parent is None else parent.run_id,
        )

    def _subset(self, assets: Any) -> dg.JobDefinition:
        return self.definition if assets is None else self.definition.get_subset(asset_selection=assets)

    def _job(self, run: dg.DagsterRun | None) -> Any:
        built = dg.build_reconstructable_job("tests.lives.jobs", "job_of", reconstructable_args=(str(self.folder),))
        assets = None if run is None else run.asset_selection
        return built if assets is None else built.get_subset(asset_selection=assets)

    def _succeeded_in_nothing(self, run: dg.DagsterRun) -> bool:
        return not any(
            log.dagster_event.is_step_success for log in self.instance.all_logs(run.run_id) if log.dagster_event
        )

    # -- what is computed, and what others do

    def _attempts(self, asset: Asset, calm: bool) -> list[Attempt]:
        failures: list[Failure] = ["before", "during", "after", "check"]
        failures += ["between"] if len(asset.outs) > 1 else []
        failures += ["kill"] if self.processes else []
        attempts = []
        for _ in range(asset.retries + 1):
            fails = None if calm or self.rng.random() < 0.45 else self.rng.choice(failures)
            before = self.rows.get(asset.name)
            rows = before if before is not None and self.rng.random() < 0.3 else self._values(asset)
            self.rows[asset.name] = rows
            attempts.append(Attempt(rows, fails))
        return attempts

    def _values(self, asset: Asset) -> dict[str, list[tuple[int, int]]]:
        return {
            out.name: [(i, self.rng.randint(0, 999)) for i in self.rng.sample(range(6), self.rng.randint(1, 4))]
            for out in asset.outs
        }

    def _others(self) -> None:
        """Somebody else inserts rows, or compacts a table."""
        outs = [out for asset in self.job.assets for out in asset.outs if not out.is_partitioned]
        tables = self.model.rows()
        outs = [out for out in outs if out.table in tables]
        if not outs:
            return
        out = self.rng.choice(outs)
        with duckrun.connect(self.folder / "lake", format=self.job.format) as session:
            if out.kind == "append" and self.job.format == "delta" and self.rng.random() < 0.4:
                before = session.table(out.table).snapshot().version
                if session.execute(out.table, OptimizeSpec()).version not in (None, before):
                    self.model.others_compact(out)
                self.told.append(f"others compact {out.table}")
                return
            row = (100 + self.rng.randint(0, 99), self.rng.randint(0, 999))
            if out.kind in ("merge", "delete+insert"):
                session.sql(f"delete from {out.table} where id = {row[0]}")
            session.sql(f"insert into {out.table} values {row}")
            self.model.others_insert(out, [row], f"{len(self.told)}")
            self.told.append(f"others insert {row} into {out.table}")
