"""Change queries: what happened to a table between two versions. The contract is in docs/changes.md."""
