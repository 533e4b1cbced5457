"""The branch that dbt works in, which is the one of the DuckrunResources beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.storage.roots import normalise_root
from duckrun.values.branches import branch_of
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.resources import DuckrunResource
from duckrun_dagster.resources.profile import LakeSettings


def branch_beside(step: Any, settings_of_profile: Callable[[], LakeSettings] | None) -> str | None:
    """Return the branch that the DuckrunResources of a step's job set; None if they set none.

    Args:
        step: The running step.
        settings_of_profile: Returns the lake of dbt's profile; None if the profile names no branch.

    Raises:
        InvalidConfig: Two resources set two branches, or a resource and ``DUCKRUN_BRANCH`` do. Also
            if dbt's profile names a branch of a lake that a resource uses without it.
    """
    configured = dict(_configured(step))
    names = sorted({branch for _, branch in configured.values() if branch})
    if len(names) > 1:
        raise InvalidConfig(
            f"The resources {', '.join(configured)} set the branches {' and '.join(names)}, and dbt works in one. "
            "Set DUCKRUN_BRANCH in the environment instead of branch."
        )
    if names:
        return branch_of(names[0], "branch of DuckrunResource")
    if settings_of_profile is None:
        return None
    settings = settings_of_profile()
    root = normalise_root(settings.root_path)
    for key, (lake, _) in configured.items():
        if settings.branch and lake == root:
            raise InvalidConfig(
                f"dbt's profile has branch {settings.branch!r} of lake {root}, and resource {key} works on the lake "
                f"itself. Set branch={settings.branch!r} there too, or take the lake of the profile by project_dir."
            )
    return None


def refuse_another_lake(step: Any, root: str) -> None:
    """Raise InvalidConfig if no DuckrunResource of a step's job can publish a branch of a lake."""
    roots = {key: lake for key, (lake, _) in _configured(step)}
    if None not in roots.values() and root not in roots.values():
        lakes = ", ".join(f"{key} {lake}" for key, lake in roots.items())
        raise InvalidConfig(
            f"dbt's profile has the lake {root}, whose branch the job does not publish: its resources have {lakes}. "
            "Take the same lake in both, or run these models in another job."
        )


def _configured(step: Any) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    """Yield each DuckrunResource of a job by its key: the root that it names, and its branch.

    Resources with the lake of a dbt profile name no root.
    """
    of_run: Mapping[str, Any] = step.dagster_run.run_config.get("resources", {})
    for key, definition in step.job_def.resource_defs.items():
        resource = getattr(getattr(definition, "resource_fn", None), "__self__", None)
        resource = resource.duckrun if isinstance(resource, DeltaIOManager) else resource
        if not isinstance(resource, DuckrunResource):
            resource = None
        launched: Any = of_run.get(key, {})
        launched = launched.get("config") if isinstance(launched, Mapping) else None
        launched = launched if isinstance(launched, Mapping) else {}
        if resource is None and not issubclass(
            getattr(definition, "configurable_resource_cls", object), DuckrunResource
        ):
            continue
        branch = launched.get("branch", None if resource is None else resource.branch_name)
        if isinstance(branch, Mapping):  # {"env": name}
            branch = os.environ.get(str(branch.get("env")))
        root = None if resource is None or not resource.root_path else resource.known().root
        yield key, (root, branch or None)
