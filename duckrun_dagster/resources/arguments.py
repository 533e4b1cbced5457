"""Checks of the arguments of resources, configurations and components.

Unknown names and bad values are refused when an object is constructed.
"""

# No "from __future__ import annotations" here: Dagster must see the classes of fields, not their
# names.

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import EnvVar
from pydantic import BaseModel, model_validator

from duckrun.errors import InvalidConfig
from duckrun.run.memory import refuse_memory
from duckrun.values.checked import unknown_name, unknown_word
from duckrun_dagster.private import IntEnvVar


def refuse_unknown(cls: type[BaseModel], values: Mapping[str, Any]) -> None:
    """Refuse an argument that a class does not have.

    Raises:
        InvalidConfig: An unknown name; the error suggests the nearest known one.
    """
    known = [field.alias or name for name, field in cls.model_fields.items()]
    for name in values:
        if name not in known:
            raise unknown_name(cls.__name__, name, known)


def refuse_word(what: str, value: Any, words: Sequence[str]) -> None:
    """Refuse a value that is not one of ``words``.

    An environment variable passes: its value is not known yet.

    Raises:
        InvalidConfig: The value is not in ``words``.
    """
    if not is_open(value) and value not in words:
        raise unknown_word(what, value, words)


def refuse_bad_memory(what: str, limit: Any, fraction: Any) -> None:
    """Refuse an invalid memory limit or fraction.

    An environment variable passes: its value is not known yet.

    Raises:
        InvalidConfig: The limit or the fraction is invalid.
    """
    try:
        refuse_memory(None if is_open(limit) else limit, None if is_open(fraction) else fraction)
    except InvalidConfig as error:
        raise InvalidConfig(f"{what}: {error}") from error


def is_open(*values: Any) -> bool:
    """Return True if an environment variable supplies one of the values when a run starts."""
    return any(isinstance(value, EnvVar | IntEnvVar) for value in values)


class KnownArguments(BaseModel):
    """Base class of a configuration or component that refuses unknown names.

    Example::

        class LakeConfig(KnownArguments, Config): ...
    """

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            refuse_unknown(cls, values)
        return values


class KnownResource:
    """Mixin of a resource that refuses unknown names when it is configured at launch.

    The constructor of the resource calls refuse_unknown() itself.
    """

    @classmethod
    def configure_at_launch(cls, **values: Any) -> Any:
        """Configure the resource as Dagster does, after a check of the names.

        Raises:
            InvalidConfig: A name that the resource does not have.
        """
        refuse_unknown(cls, values)  # type: ignore[arg-type]
        return super().configure_at_launch(**values)  # type: ignore[misc]
