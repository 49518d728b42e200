"""Queries: SQL text is read into a small immutable plan, and everything that can be known from the plan alone is
computed here, without Spark. May import the model.

`nodes` has the operators of a plan (built on `plan` and `expr`). `reading` makes a plan of text and is the only folder
that knows sqlglot. Facts about plans are in `times`, `patterns`, `lineage`, `estimates` and `cost`; `route`,
`incremental` and `source_reads` say how a plan is evaluated continuously. `rewrite` makes better plans, `explain`
describes them to a person, `near_support` and `near_dialect` prepare them for the near engine. `queries` is the entry
point for one query or for all queries of a project.
"""
