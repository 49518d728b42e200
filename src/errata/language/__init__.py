"""Queries: SQL text becomes a small immutable plan, and all that can be known from the plan alone. There is no Spark.
May import the model.

`nodes` are the operators of a plan (on `plan` and `expr`). `reading` makes a plan of text and is the only place that
knows sqlglot. Facts about plans are `times`, `patterns`, `strategy`, `lineage` and `cost`; `rewrite` makes better ones,
`explaining` tells it all to a person. `queries` is the door for one query or a project's.
"""
