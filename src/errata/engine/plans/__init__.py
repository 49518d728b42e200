"""Plans of the language as DataFrames, whole histories of an answer or the answer at one instant: one file for each
kind of operator, and `compile`, the door. May import the language and the model; knows no catalog and no files.

Within the room a node's columns are called by their places, `c0`, `c1`, …, since the names in a plan are any text and
Spark would not tell two apart that differ in case only. Beside them stand the scope (`_s0`, …), the lifetime (`_vs`,
`_ve`), the own time where it is kept apart from it (`_ts`) and, if asked for, the lineage (`_from_<i>`, `_to_<i>`).
"""
