"""The defs.yaml that `dg scaffold defs` writes for a component."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pydantic import BaseModel


class ScaffoldParams(BaseModel):
    """Parameters of `dg scaffold defs`, each with a default."""

    def attributes(self) -> dict[str, Any]:
        """Return the component's attributes in the new defs.yaml."""
        return self.model_dump()


def scaffolder(params: type[ScaffoldParams]) -> type[dg.Scaffolder[ScaffoldParams]]:
    """Return a scaffolder class that writes a defs.yaml with the attributes of these parameters."""

    class Written(dg.Scaffolder[ScaffoldParams]):
        """Scaffolder of a component with these parameters."""

        @classmethod
        def get_scaffold_params(cls) -> type[ScaffoldParams]:
            return params

        def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
            dg.scaffold_component(request, (request.params or params()).attributes())

    return Written
