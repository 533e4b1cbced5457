"""docs/dagster_reference.md has every key, type and field that the code takes, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from duckrun.values.choices import ClauseKind
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource, config
from duckrun_dagster.io_managers.handlers.registry import _NAMES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "dagster_reference.md").read_text(encoding="utf-8")


def rows(title: str) -> dict[str, str]:
    """Name -> the rest of its row, of the table under a heading; a row may have several names."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]
    table = [line.split("|", 2)[1:] for line in section.splitlines() if line.startswith("| `")]
    return {name: rest for names, rest in table for name in re.findall(r"`([\w<>]+)`", names)}


def words(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_key_of_an_asset_has_its_values() -> None:
    page = rows("Metadata of an asset")
    assert set(page) == set(config.TABLE_KEYS)
    value = {key: words(rest.split(" | ")[0]) for key, rest in page.items()}
    assert value["engine"] == set(config.ENGINES)
    assert value["mode"] == set(config.MODES)
    assert value["schema_mode"] == set(config.SCHEMA_MODES)
    assert value["merge_clauses"] >= set(get_args(ClauseKind))


def test_every_key_of_an_input_and_every_type_that_it_names() -> None:
    assert set(rows("Metadata of an input")) == set(config.INPUT_KEYS)
    page = {name: words(rest) for name, rest in rows("Types by name").items()}
    assert page == {name: {where.replace(":", ".").removeprefix("builtins.")} for name, where in _NAMES.items()}


@pytest.mark.parametrize("resource", [DeltaIOManager, DuckrunResource, SparkResource])
def test_every_field_of_a_resource(resource: type) -> None:
    fields = {field.alias or name for name, field in resource.model_fields.items()}
    assert set(rows(f"`{resource.__name__}`")) == fields
