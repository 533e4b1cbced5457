"""From figures to the page docs/benchmarks.md: tables, plots, and which goals are met."""
