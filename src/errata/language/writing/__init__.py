"""A plan as text of the language again: `printing.to_sql`. May import nodes and facts, and not sqlglot."""
