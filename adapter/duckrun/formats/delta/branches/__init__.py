"""Lines of branches over Delta tables: their net change, its commit to main, and local log copies.

It knows commits, versions and files, and nothing of sessions and engines. Read ``net.py`` first.
"""
