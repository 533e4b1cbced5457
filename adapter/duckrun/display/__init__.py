"""Text, HTML and pictures for terminals and notebooks.

This package formats values and knows no table. Read ``notebook.py`` first.
"""
