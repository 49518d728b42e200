"""Plans compiled to DataFrames: the whole history of an answer, or the answer at one instant. `compile` is the entry
point; each other module has one kind of operator. May import the language and the model; knows no catalog and no files.

Within this folder a node's columns are named by their positions, `c0`, `c1`, …, since names in a plan are arbitrary
text and Spark would confuse two that differ only in case. Beside them are the scope (`_s0`, …), the lifetime (`_vs`,
`_ve`), the own time where it is kept apart from it (`_ts`) and, on request, the lineage (`_from_<i>`, `_to_<i>`).
"""
