"""Address and format of a lake in Dagster's configuration, with secrets hidden and restored."""

# No "from __future__ import annotations" here: Dagster must see the classes of fields, not their
# names.

from collections.abc import Mapping
from typing import Any

from dagster import Config
from pydantic import BaseModel, Field

from duckrun.storage.roots import refuse_credentials
from duckrun.values.lake_format import LakeFormat
from duckrun_dagster.resources.arguments import KnownArguments, is_open
from duckrun_dagster.resources.hidden import hide, shown_catalog, written
from duckrun_dagster.resources.profile import LakeSettings


class LakeForm(BaseModel):
    """The fields of a lake's format."""

    format: str | None = Field(default=None, description="delta, if nothing names one, or ducklake.")
    catalog: str | None = Field(
        default=None,
        description="Of ducklake: sqlite:<file> (catalog.sqlite in the root), postgres:<dsn>, duckdb:<file>.",
    )
    inline_rows: int | None = Field(
        default=None, description="Of ducklake: up to how many rows of an insert lie in the catalog."
    )
    encrypted: bool | None = Field(default=None, description="Of ducklake: whether a new lake's files are encrypted.")


class LakeFields(LakeForm):
    """The fields of a lake: its address or the dbt profile that names it, and its memory."""

    root_path: str | None = Field(default=None, description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    project_dir: str | None = Field(default=None, description="A dbt project whose profile is of type duckrun.")
    profiles_dir: str | None = Field(default=None, description="Where profiles.yml is; as dbt finds it, if not given.")
    profile: str | None = Field(default=None, description="Its profile; the project's own, if not given.")
    target: str | None = Field(default=None, description="Its target; the profile's own, if not given.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Credentials, in delta_rs's names.")
    branch: str | None = Field(
        default=None,
        description="A branch of the lake, which is read and written instead; empty: the lake itself. "
        "If not set, the profile's, else DUCKRUN_BRANCH of the environment.",
    )
    memory_fraction: float | None = Field(
        default=None,
        description="A step process's part of the machine and of memory_limit, 0 to 1; "
        "if not given, one by the processes that the run may have at once.",
    )
    memory_limit: str | None = Field(
        default=None, description="At most this much memory, such as 4GB, for all step processes of a run together."
    )


FORM = tuple(LakeForm.model_fields)


class LakeConfig(KnownArguments, LakeForm, Config):
    """A further lake of a DuckrunResource; assets name it by the metadata ``lake``.

    Example::

        live = LakeConfig(root_path="live/", format="ducklake")
        DuckrunResource(root_path="lake/", lakes={"live": live})
    """

    root_path: str = Field(description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Credentials, in delta_rs's names.")
    read_only: bool = Field(default=False, description="Whether assets may only read it.")


def hidden(values: Mapping[str, Any], within: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a lake as Dagster may show them, and the secrets in them.

    Args:
        values: The fields.
        within: Prefix of the secrets' keys: the name of one of ``lakes``.

    Raises:
        InvalidConfig: An address has credentials in it, or a catalog is invalid.
    """
    shown = dict(values)
    secrets: dict[str, str] = {}
    if isinstance(values.get("root_path"), str):
        refuse_credentials(values["root_path"])  # when the code loads, before a page shows them
    options, hidden_secrets = hide(values.get("storage_options") or {})
    if hidden_secrets:
        shown["storage_options"] = options
        secrets |= {f"{within}{key}": value for key, value in hidden_secrets.items()}
    catalog = values.get("catalog")
    if (safe := shown_catalog(catalog)) != catalog:
        shown["catalog"] = safe
        secrets[f"{within}{safe}"] = str(catalog)
    form = [values.get(word) for word in FORM]
    if not is_open(*form):
        LakeFormat.of(*form)
    lakes = {}
    for name, other in (values.get("lakes") or {}).items():
        lakes[name], hidden_secrets = hidden(
            dict(other) if isinstance(other, Mapping) else {f: getattr(other, f) for f in type(other).model_fields},
            f"{name}/",
        )
        secrets |= hidden_secrets
    return {**shown, **({"lakes": lakes} if lakes else {})}, secrets


def form_of(config: LakeForm, secrets: Mapping[str, str]) -> LakeFormat:
    """Return the format that some fields name, with the password of the catalog.

    Raises:
        InvalidConfig: The fields do not go together.
    """
    catalog = secrets.get(config.catalog or "", config.catalog)
    return LakeFormat.of(config.format, catalog, config.inline_rows, config.encrypted)


def settings_of(name: str, config: LakeConfig, secrets: Mapping[str, str]) -> LakeSettings:
    """Return the settings of one of ``lakes``.

    Raises:
        InvalidConfig: The configuration holds an error.
    """
    lake_secrets = {key.removeprefix(f"{name}/"): value for key, value in secrets.items() if key.startswith(f"{name}/")}
    return LakeSettings(
        config.root_path,
        storage_options=written(config.storage_options, lake_secrets),
        form=form_of(config, lake_secrets),
        read_only=config.read_only,
    )
