"""SQL statements: text -> tokens or syntax tree -> frozen values -> specs, which a session carries out.

``parsing`` reads all of a text before ``running`` starts with its first statement.
"""
