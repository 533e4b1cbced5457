"""SQL statements: text, tokens or syntax tree, frozen values, and specs that a session executes.

``parsing`` reads all of a text before ``run`` executes its first statement.
"""
