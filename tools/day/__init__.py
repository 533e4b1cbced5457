"""A compressed day of the example under Dagster's daemon, with faults; see `__main__.py`."""
