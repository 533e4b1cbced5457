"""Measurements of one thing each, run by name: ``python -m benchmarks.apart.session``."""
