"""duckrun side by side with what a user would pick instead: ``python -m benchmarks``."""
