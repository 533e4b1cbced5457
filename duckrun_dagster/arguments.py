"""Arguments of resources, configurations and components: unknown names and bad values are refused when one is constructed."""

# No "from __future__ import annotations" here: Dagster must see the classes of fields, not their names.

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import EnvVar
from dagster._config.field_utils import IntEnvVar
from pydantic import BaseModel, model_validator

from duckrun.errors import InvalidConfig
from duckrun.run.memory import refuse_memory
from duckrun.values.checked import unknown_name, unknown_word


def refuse_unknown(cls: type[BaseModel], values: Mapping[str, Any]) -> None:
    """Raise InvalidConfig, with the nearest known name, for an argument that a class does not have."""
    known = [field.alias or name for name, field in cls.model_fields.items()]
    for name in values:
        if name not in known:
            raise unknown_name(cls.__name__, name, known)


def refuse_word(what: str, value: Any, words: Sequence[str]) -> None:
    """Raise InvalidConfig for a value that is none of some words. An environment variable is not known yet."""
    if not is_open(value) and value not in words:
        raise unknown_word(what, value, words)


def refuse_bad_memory(what: str, limit: Any, fraction: Any) -> None:
    """Raise InvalidConfig for a memory limit or fraction that is none. An environment variable is not known yet."""
    try:
        refuse_memory(None if is_open(limit) else limit, None if is_open(fraction) else fraction)
    except InvalidConfig as error:
        raise InvalidConfig(f"{what}: {error}") from error


def is_open(value: Any) -> bool:
    """True for a value that an environment variable decides when a run starts."""
    return isinstance(value, EnvVar | IntEnvVar)


class KnownArguments(BaseModel):
    """A configuration or a component that refuses names that it does not have.

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
    """The part of a resource that refuses unknown names where it is configured at launch; its constructor calls refuse_unknown()."""

    @classmethod
    def configure_at_launch(cls, **values: Any) -> Any:
        """As Dagster's. Raises InvalidConfig for a name that the resource does not have."""
        refuse_unknown(cls, values)  # type: ignore[arg-type]
        return super().configure_at_launch(**values)  # type: ignore[misc]
