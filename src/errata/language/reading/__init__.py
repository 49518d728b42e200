"""SQL text is read into a plan: parsed, checked and lowered, with the place of every mistake. The only folder that
knows sqlglot.

`parser` makes a tree, `select` lowers it SELECT by SELECT, and `mistakes` has the errors and the list of refused SQL.
Other folders use `language.queries`, one level above.
"""
