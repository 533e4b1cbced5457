"""Secrets in the configuration of resources, which Dagster must not show.

Of an EnvVar Dagster shows only the name; a secret that is written out is replaced here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

from dagster import ConfigurableResource, EnvVar
from pydantic import PrivateAttr

from duckrun.values.lake_format import CatalogAddress
from duckrun_dagster.resources.arguments import KnownResource

HIDDEN = "********"
_OF_KEYS = ("secret", "key", "token", "password", "sas", "credential")
_OF_VALUES = ("secret", "token=", "password")
"""Marks of a secret in another option's value.

An example is ``spark.driver.extraJavaOptions: -Dx.password=…``.
"""


def hide(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options as Dagster may show them, and the secrets that it must not show."""
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
    """Return the original options, from those that Dagster shows and the secrets of hide()."""
    return {key: secrets.get(key, value) if value == HIDDEN else value for key, value in options.items()}


def shown_catalog(text: Any) -> Any:
    """Return the address of a catalog without its password.

    Raises:
        InvalidConfig: The text is not an address of a catalog.
    """
    if not isinstance(text, str) or isinstance(text, EnvVar):
        return text
    address = CatalogAddress.parse(text)
    return text if address.is_file or address.redacted(text) == text else str(address)


class HidesSecrets(KnownResource, ConfigurableResource):
    """A resource that stores the secrets of its configuration apart.

    Dagster's copies of the resource do so too.
    """

    _secrets: dict[str, str] = PrivateAttr(default_factory=dict)

    def _with_updated_values(self, values: Mapping[str, Any] | None) -> Self:
        # Dagster builds the copy that it runs from the shown configuration, which has no secrets.
        copy = cast(Self, super()._with_updated_values(values))
        copy._secrets = {**self._secrets, **copy._secrets}
        return copy
