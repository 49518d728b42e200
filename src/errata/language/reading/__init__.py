"""SQL text into a plan: parsed, checked and lowered, with the place of every mistake. Only here is sqlglot known.

Its doors are `parse`, `lower` and `mistakes`; `queries`, a floor above, is what others use.
"""
