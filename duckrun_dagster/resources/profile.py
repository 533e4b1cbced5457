"""The lake of a dbt profile: dbt reads and renders the profile, so a lake is configured once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duckrun.branches.lake import open_branch
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes, refuse_name
from duckrun.values.branches import branch_of
from duckrun.values.choices import WriterChoice
from duckrun.values.lake_format import DELTA_LAKE, LakeFormat


class NoLake(InvalidConfig):
    """Error: the profile is of another type than duckrun."""


@dataclass(frozen=True)
class LakeSettings:
    """Address, credentials and format of a lake."""

    root_path: str
    schema: str | None = None
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    memory_limit: str | None = None
    form: LakeFormat = DELTA_LAKE
    read_only: bool = False
    writer: WriterChoice = "auto"
    branch: str | None = None
    """Branch of the lake; the further lakes have none."""
    lakes: Mapping[str, LakeSettings] = field(default_factory=dict)
    """Further lakes, by their names."""

    def lake(self, name: str | None = None) -> Lake:
        """Return the lake alone; a session attaches it by ``name``."""
        return open_branch(
            self.root_path,
            self.branch,
            schema=self.schema or "main",
            storage_options=self.storage_options,
            read_only=self.read_only,
            name=name,
            form=self.form,
        )

    def opened(self) -> Lakes:
        """Return the lake with the others; nothing is read.

        Raises:
            InvalidConfig: A lake has an invalid name.
        """
        for name in self.lakes:
            refuse_name(name)
        return Lakes(self.lake(), [other.lake(name) for name, other in self.lakes.items()])


def lake_of_profile(
    project_dir: str | os.PathLike[str],
    profile: str | None = None,
    target: str | None = None,
    profiles_dir: str | os.PathLike[str] | None = None,
) -> LakeSettings:
    """Return the lake that a dbt project's profile of ``type: duckrun`` names.

    ``env_var`` and the rest of dbt's Jinja work. A relative ``root_path`` is relative to the
    project, where dbt runs.

    Raises:
        NoLake: The profile is of another type.
        InvalidConfig: The profile holds an error; the text names the file.
    """
    project = Path(project_dir).expanduser().absolute()
    if not (project / "dbt_project.yml").is_file():
        raise InvalidConfig(f"project_dir {project} holds no dbt_project.yml.")
    folder = _profiles_dir(project, profiles_dir)
    values, chosen = _render(project, folder, profile, target)
    what = f"{chosen} in {folder / 'profiles.yml'}"
    if values.get("type") != "duckrun":
        raise NoLake(f"{what} is of type {values.get('type')!r}; a lake needs type: duckrun.")
    root = values.get("root_path")
    if not root:
        raise InvalidConfig(f"{what} has no root_path. Set it to a folder or to an s3://, az:// or gs:// URL.")
    _refuse_unknown(values, what)
    limit = values.get("memory_limit")
    return LakeSettings(
        **_place(values, project, what),
        schema=values.get("schema"),
        memory_limit=None if limit is None else str(limit),
        writer=values.get("writer") or "auto",
        branch=branch_of(values.get("branch"), f"{what}: branch"),
        lakes={
            str(name): LakeSettings(
                **_place(other, project, f"{what}, lakes: {name}"), read_only=bool(other.get("read_only"))
            )
            for name, other in (values.get("lakes") or {}).items()
            if other.get("root_path")
        },
    )


def _refuse_unknown(values: Mapping[str, Any], what: str) -> None:
    """Raise InvalidConfig for a key that the adapter refuses too."""
    from dbt.adapters.duckrun.credentials import refuse_unknown_keys
    from dbt_common.exceptions import DbtRuntimeError

    # A misspelt key would silently name another lake.
    try:
        refuse_unknown_keys(values)
    except DbtRuntimeError as error:
        raise InvalidConfig(f"{what}: {error.msg}") from error


def _place(values: Mapping[str, Any], project: Path, what: str) -> dict[str, Any]:
    """Return address, credentials and format of a lake of a profile. Raises InvalidConfig."""
    # Relative paths are relative to the project.
    root = str(values["root_path"])
    if "://" not in root and not Path(root).expanduser().is_absolute():
        root = str(project / root)
    kind, _, file = str(values.get("catalog") or "").partition(":")
    catalog = values.get("catalog")
    if kind.lower() in ("sqlite", "duckdb") and file and not Path(file).expanduser().is_absolute():
        catalog = f"{kind}:{project / file}"
    try:
        form = LakeFormat.from_mapping({**values, "catalog": catalog})
    except InvalidConfig as error:
        raise InvalidConfig(f"{what}: {error}") from error
    options = values.get("storage_options") or {}
    return {"root_path": root, "storage_options": {str(k): str(v) for k, v in options.items()}, "form": form}


def may_have(key: str, project_dir: str | os.PathLike[str], profiles_dir: str | os.PathLike[str] | None = None) -> bool:
    """Return True if the profiles of a dbt project may have a key.

    Only the text of the file is searched; nothing is rendered.
    """
    file = _profiles_dir(Path(project_dir).expanduser().absolute(), profiles_dir) / "profiles.yml"
    return file.is_file() and key in file.read_text(encoding="utf-8")


def _profiles_dir(project: Path, chosen: str | os.PathLike[str] | None) -> Path:
    """Return the folder of profiles.yml in the search order of dagster-dbt and dbt."""
    # The argument, the environment, the project, the home folder.
    if chosen is not None:
        return Path(chosen).expanduser().absolute()
    candidates = [project, Path.home() / ".dbt"]
    if os.environ.get("DBT_PROFILES_DIR"):
        candidates.insert(0, Path(os.environ["DBT_PROFILES_DIR"]))
    return next((c for c in candidates if (c / "profiles.yml").is_file()), project)


def _render(project: Path, folder: Path, profile: str | None, target: str | None) -> tuple[dict[str, Any], str]:
    """Return the rendered keys of the chosen target, and its name for a message."""
    # Importing dbt's configuration takes most of a second; only a resource with a project_dir needs
    # it.
    from dbt.config.profile import Profile, read_profile
    from dbt.config.project import load_raw_project
    from dbt.config.renderer import ProfileRenderer
    from dbt_common.context import set_invocation_context
    from dbt_common.exceptions import DbtBaseException

    # dbt's env_var() reads the environment of the invocation context, also outside of an
    # invocation.
    set_invocation_context(os.environ.copy())
    try:
        renderer = ProfileRenderer({})
        name = profile or renderer.render_value(load_raw_project(str(project)).get("profile"))
        profiles = read_profile(str(folder))
        if not profiles:
            raise InvalidConfig(f"{folder / 'profiles.yml'} does not exist or is empty. Set profiles_dir, or write it.")
        if name not in profiles:
            raise InvalidConfig(f"{folder / 'profiles.yml'} has no profile {name!r}; it has {', '.join(profiles)}.")
        chosen, values = Profile.render_profile(profiles[name], name, target, renderer)
    except DbtBaseException as error:
        raise InvalidConfig(f"Cannot read the dbt profile of {project}: {error}") from error
    return values, f"Target {chosen!r} of profile {name!r}"
