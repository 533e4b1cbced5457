"""SQL text to statements, which are frozen values.

It reads a whole text before anything runs, and refuses by name what is not supported. It opens no
table. Read ``parsing.py`` first.
"""
