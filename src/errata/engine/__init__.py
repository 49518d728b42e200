"""The two engines that run compiled plans: near (Sail, in a process beside this one) and far (Spark). May import the
model and the language.

`engines` runs a piece of work on the one that suits it, `budget` decides which, and `plans` compiles a plan to
DataFrames. Only this folder knows that there are two engines.
"""
