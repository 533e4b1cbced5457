"""dbt models as assets of the lake. Importing this package imports no dbt."""
