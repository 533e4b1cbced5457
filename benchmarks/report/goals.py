"""What was promised, as ratios of medians in one run, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.case import RUN
from benchmarks.harness.figures import PEAK, Figures

OURS, VECTORS, COPY, DELTALAKE = "duckrun", "duckrun, vectors", "duckrun, copy", "deltalake"


@dataclass(frozen=True)
class Goal:
    """``one`` over ``other`` of a job's label; ``scales``: at each of these alone. With ``spread`` it is the slowest over the
    fastest of ``one`` over all scales, with ``growth`` that of the largest scale over that of the smallest.
    """

    says: str
    job: str
    one: str
    other: str
    bound: Literal["at most", "at least"]
    limit: float
    label: str = RUN
    scales: tuple[float, ...] | None = None
    spread: bool = False
    growth: bool = False

    def measured(self, figures: Figures) -> list[tuple[float | None, float]]:
        """Scale and ratio, for all that was measured. Of a spread the scale is the largest of at least two."""
        scales = [each for each in figures.scales(self.job) if self.scales is None or each in self.scales]
        found = []
        for scale in scales:
            one = figures.median(self.job, self.one, scale, self.label)
            other = one if self.spread or self.growth else figures.median(self.job, self.other, scale, self.label)
            if one is not None and other:
                found.append((scale, one if self.spread or self.growth else one / other))
        if self.spread:
            values = [value for _, value in found]
            return [(found[-1][0], max(values) / min(values))] if len(values) > 1 else []
        if self.growth:
            return [(found[-1][0], found[-1][1] / found[0][1])] if len(found) > 1 else []
        return found

    def met(self, ratio: float) -> bool:
        return ratio <= self.limit if self.bound == "at most" else ratio >= self.limit


def _merge(side: str, job: str, faster: float) -> Goal:
    return Goal(
        f"merge of 1 % random keys, {side.partition(', ')[2]}: times faster than tuned deltalake",
        job,
        DELTALAKE,
        side,
        "at least",
        faster,
        scales=(5, 10),
    )


GOALS: Sequence[Goal] = (
    _merge(VECTORS, "merge-random-1", 10),
    Goal(
        "the same, vectors: its memory",
        "merge-random-1",
        VECTORS,
        DELTALAKE,
        "at most",
        0.5,
        label=PEAK,
        scales=(5, 10),
    ),
    _merge(COPY, "merge-random-1", 1.7),
    *(
        Goal(
            f"60,000 recent keys, {side.partition(', ')[2]}: slowest scale factor over fastest",
            "merge-recent-60k",
            side,
            side,
            "at most",
            1.5,
            scales=(1, 5, 10),
            spread=True,
        )
        for side in (VECTORS, COPY)
    ),
    Goal("full write over DuckDB's COPY", "write", OURS, "DuckDB COPY", "at most", 1.1),
    Goal("full write: times faster than the Arrow stream to delta_rs", "write", DELTALAKE, OURS, "at least", 1.4),
    Goal("full write: its memory", "write", OURS, DELTALAKE, "at most", 0.5, label=PEAK),
    Goal("10 million polars rows over `write_deltalake`", "polars-write", OURS, DELTALAKE, "at most", 0.7),
    Goal(
        "the IO manager's write over dagster-deltalake-polars",
        "io-10m",
        OURS,
        "dagster-deltalake-polars",
        "at most",
        0.8,
        label="write",
    ),
    Goal(
        "a step of 100,000 rows over dagster-deltalake-polars",
        "io-100k",
        OURS,
        "dagster-deltalake-polars",
        "at most",
        1.0,
        label="step",
    ),
    Goal("append of ten rows, young table, over `write_deltalake`", "append-ten-1", OURS, DELTALAKE, "at most", 0.8),
    Goal("append of ten rows, 100 versions", "append-ten-100", OURS, DELTALAKE, "at most", 0.8),
    *(
        Goal(
            f"merge of ten rows into a million, {side.partition(', ')[2]}", "merge-ten", side, DELTALAKE, "at most", 0.5
        )
        for side in (VECTORS, COPY)
    ),
    *(
        Goal(
            f"read through the view over `read_parquet`, {label}",
            "read",
            OURS,
            "read_parquet",
            "at most",
            1.05,
            label=label,
        )
        for label in ("one column", "filter", "groups")
    ),
    Goal(
        "read with 1 % vectors over `read_parquet`, one column",
        "read-marked",
        OURS,
        "read_parquet",
        "at most",
        1.25,
        label="one column",
    ),
    *(
        Goal(
            f"what changed, {says}: times faster than the whole difference",
            f"changes-{name}",
            "difference",
            OURS,
            "at least",
            faster,
            scales=(5,),
        )
        for name, says, faster in (
            ("vectors", "30,000 latest rows by vectors", 25),
            ("random", "30,000 random rows by vectors", 8),
            ("copy", "30,000 latest rows by copy", 12),
            ("feed", "30,000 latest rows by the feed", 50),
        )
    ),
    *(
        Goal(
            f"the same, {says}: its memory",
            f"changes-{name}",
            OURS,
            "difference",
            "at most",
            0.1,
            label=PEAK,
            scales=(5,),
        )
        for name, says in (("vectors", "latest rows by vectors"), ("copy", "latest rows by copy"))
    ),
    *(
        Goal(
            f"the same, {says}: a table ten times the size over the smaller one",
            f"changes-{name}",
            OURS,
            OURS,
            "at most",
            1.5,
            scales=(0.5, 5),
            growth=True,
        )
        for name, says in (
            ("vectors", "latest rows by vectors"),
            ("copy", "latest rows by copy"),
            ("feed", "by the feed"),
        )
    ),
    *(
        Goal(
            f"DuckLake in {kind}, {says}, over the bare statements",
            f"ducklake-{kind}",
            OURS,
            "bare statements",
            "at most",
            1.5,
            label=label,
        )
        for kind in ("sqlite", "postgres", "duckdb")
        for label, says in (("append", "an append of ten rows"), ("read after", "a read after 1,000"))
    ),
    Goal(
        "DuckLake, merge of 25,000 rows into a million, over the bare statement",
        "ducklake-merge",
        OURS,
        "bare statements",
        "at most",
        1.5,
    ),
    *(
        Goal(
            f"the Spark engine over delta-spark, {label}",
            "spark-engine",
            OURS,
            "delta-spark",
            "at most",
            limit,
            label=label,
        )
        for label, limit in (("write", 1.05), ("append", 1.05), ("merge", 1.05), ("query", 1.05))
    ),
    Goal(
        "Spark: 365 partitions replaced, over delta-spark",
        "spark-year",
        OURS,
        "delta-spark",
        "at most",
        1.05,
        label="365 partitions",
    ),
    Goal("`dbt run` of one model over dbt-duckdb", "dbt-1", OURS, "dbt-duckdb", "at most", 1.1),
    Goal("`dbt run` of 50 models over dbt-duckdb", "dbt-50", OURS, "dbt-duckdb", "at most", 1.15),
    *(
        Goal(f"{label} in a branch over main, {title}", job, "branch", "main", "at most", 1.1, label=label)
        for job, title, labels in (
            ("branch-1000", "1,000 files", ("read of some rows", "read of all rows")),
            ("branch-100000", "100,000 files", ("read of some rows",)),
        )
        for label in labels
    ),
)
