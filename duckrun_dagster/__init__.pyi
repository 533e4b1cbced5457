from .components import (
    DuckrunLakeComponent as DuckrunLakeComponent,
    MaintainedTablesComponent as MaintainedTablesComponent,
)
from .components.dbt_project import DuckrunDbtProjectComponent as DuckrunDbtProjectComponent
from .dbt.cli import DuckrunDbtCliResource as DuckrunDbtCliResource
from .dbt.translator import DuckrunDbtTranslator as DuckrunDbtTranslator
from .dbt.vars import partition_vars as partition_vars
from .definitions import check_definitions as check_definitions
from .io_managers import DeltaIOManager as DeltaIOManager, TypeHandler as TypeHandler
from .io_managers.together import publish_together as publish_together
from .publishing import publish_after_checks as publish_after_checks
from .resources import DuckrunResource as DuckrunResource, SparkResource as SparkResource
from .resources.lake_config import LakeConfig as LakeConfig
from .upkeep.checks import table_checks as table_checks
from .upkeep.lakes import lake_maintenance as lake_maintenance
from .upkeep.maintenance import MaintainedTable as MaintainedTable, maintenance as maintenance
from .upkeep.sources import observable_table as observable_table
from .upkeep.unseen import UnseenChanges as UnseenChanges, changes_sensor as changes_sensor
