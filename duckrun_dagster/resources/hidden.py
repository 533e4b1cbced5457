"""Configuration of resources that Dagster may not show: secrets written as they are, where an EnvVar would show its name only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from dagster import ConfigurableResource, EnvVar
from pydantic import PrivateAttr

from duckrun.values.lake_format import CatalogAddress
from duckrun_dagster.arguments import KnownResource

HIDDEN = "********"
_OF_KEYS = ("secret", "key", "token", "password", "sas", "credential")
_OF_VALUES = ("secret", "token=", "password")
"""What the value of a harmless option may hold: ``spark.driver.extraJavaOptions`` of ``-Dx.password=…``."""


def hide(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options as Dagster may show them, and the values that it may not."""
    secrets = {
        key: value
        for key, value in options.items()
        if isinstance(value, str)
        and not isinstance(value, EnvVar)
        and value != HIDDEN
        and (any(w in key.lower() for w in _OF_KEYS) or any(w in value.lower() for w in _OF_VALUES))
    }
    return {key: HIDDEN if key in secrets else value for key, value in options.items()}, secrets


def written(options: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Options as they were written, from those that Dagster shows and what hide() kept."""
    return {key: secrets.get(key, value) if value == HIDDEN else value for key, value in options.items()}


def shown_catalog(text: Any) -> Any:
    """The address of a catalog as Dagster may show it: without its password. Raises InvalidConfig for no address."""
    if not isinstance(text, str) or isinstance(text, EnvVar):
        return text
    address = CatalogAddress.parse(text)
    return text if address.is_file or address.redacted(text) == text else str(address)


class HidesSecrets(KnownResource, ConfigurableResource):
    """A resource that keeps the secrets of its configuration beside it, for the copies too that Dagster makes of it."""

    _secrets: dict[str, str] = PrivateAttr(default_factory=dict)

    def _with_updated_values(self, values: Mapping[str, Any] | None) -> Self:
        # Dagster builds the copy it runs from the configuration that it shows, where the secrets are hidden.
        copy = cast(Self, super()._with_updated_values(values))
        copy._secrets = {**self._secrets, **copy._secrets}
        return copy
