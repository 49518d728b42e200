"""Reading: results, changes, history, why, status and reports, for people and programs. Writes nothing.

Light modules (`tables`, `wording`, `status`) are imported by commands that start cold; keep this file empty of imports.
"""
