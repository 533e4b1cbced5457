"""Faults of Dagster. Each docstring says the right result."""

from __future__ import annotations

import dagster as dg


class Lake(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource of two fields."""

    root: str = "default"
    part: str = "main"


def test_a_run_that_configures_one_field_of_a_resource_resets_the_others() -> None:
    """Right: /lake and other."""
    seen: list[tuple[str, str]] = []

    @dg.op
    def read(lake: dg.ResourceParam[Lake]) -> None:
        seen.append((lake.root, lake.part))

    @dg.job(resource_defs={"lake": Lake(root="/lake", part="main")})
    def reading() -> None:
        read()

    reading.execute_in_process(run_config={"resources": {"lake": {"config": {"part": "other"}}}})
    assert seen == [("default", "other")]
