"""Where a lake is and what its tables are, as Dagster's configuration has it: secrets hidden, and as they were written."""

# No "from __future__ import annotations" here: Dagster must see the classes of fields, not their names.

from collections.abc import Mapping
from typing import Any

from dagster import Config
from pydantic import Field

from duckrun.storage.storage import refuse_credentials
from duckrun.values.lake_format import LakeFormat
from duckrun_dagster.arguments import KnownArguments, is_open
from duckrun_dagster.resources.hidden import hide, shown_catalog, written
from duckrun_dagster.resources.profile import LakeSettings

FORM = ("format", "catalog", "inline_rows", "encrypted")
"""The fields that say in which format a lake is."""


class LakeConfig(KnownArguments, Config):
    """Another lake of a DuckrunResource: assets name it by the metadata ``lake``.

    Example::

        DuckrunResource(root_path="lake/", lakes={"live": LakeConfig(root_path="live/", format="ducklake")})
    """

    root_path: str = Field(description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    format: str | None = Field(default=None, description="delta or ducklake.")
    catalog: str | None = Field(default=None, description="Of ducklake: sqlite:<file>, postgres:<dsn>, duckdb:<file>.")
    inline_rows: int | None = Field(default=None, description="Up to how many rows of an insert lie in the catalog.")
    encrypted: bool | None = Field(default=None, description="Whether a new lake's files are encrypted.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Credentials, in delta_rs's names.")
    read_only: bool = Field(default=False, description="Whether assets may only read it.")


def hidden(values: Mapping[str, Any], within: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of a lake as Dagster may show them, and the secrets in them; ``within`` names one of ``lakes``.

    Raises InvalidConfig for credentials in an address, and for a catalog that is none.
    """
    shown = dict(values)
    secrets: dict[str, str] = {}
    if isinstance(values.get("root_path"), str):
        refuse_credentials(values["root_path"])  # while the code is loaded, before a page shows them
    options, found = hide(values.get("storage_options") or {})
    if found:
        shown["storage_options"] = options
        secrets |= {f"{within}{key}": value for key, value in found.items()}
    catalog = values.get("catalog")
    if (safe := shown_catalog(catalog)) != catalog:
        shown["catalog"] = safe
        secrets[f"{within}{safe}"] = str(catalog)
    form = [values.get(word) for word in FORM]
    if not any(is_open(each) for each in form):
        LakeFormat.of(*form)
    lakes = {}
    for name, other in (values.get("lakes") or {}).items():
        lakes[name], found = hidden(
            dict(other) if isinstance(other, Mapping) else {f: getattr(other, f) for f in type(other).model_fields},
            f"{name}/",
        )
        secrets |= found
    return {**shown, **({"lakes": lakes} if lakes else {})}, secrets


def form_of(config: Any, secrets: Mapping[str, str], within: str = "") -> LakeFormat:
    """The format that some fields name, with the password of the catalog. Raises InvalidConfig."""
    catalog = config.catalog
    if catalog is not None:
        catalog = secrets.get(f"{within}{catalog}", catalog)
    return LakeFormat.of(config.format, catalog, config.inline_rows, config.encrypted)


def settings_of(name: str, config: LakeConfig, secrets: Mapping[str, str]) -> LakeSettings:
    """One of ``lakes``. Raises InvalidConfig."""
    own = {key.removeprefix(f"{name}/"): value for key, value in secrets.items() if key.startswith(f"{name}/")}
    return LakeSettings(
        config.root_path,
        storage_options=written(config.storage_options, own),
        form=form_of(config, own),
        read_only=config.read_only,
    )
