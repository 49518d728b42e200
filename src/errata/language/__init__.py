"""Queries: SQL text becomes a small immutable plan, and all that can be known from the plan alone. Only here is sqlglot
known; there is no Spark. May import the model.

Its doors are `queries` (read one query, or a project's), `plan` (the nodes) and the facts about plans: `times`,
`patterns`, `lineage`, `cost`, `rewrite`, `explain`.
"""
