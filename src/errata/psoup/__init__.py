"""Registered queries: which rows of a stream satisfy which of them is worked out once, and the window is applied when
they are invoked.

May import `archive`, `declare`, `intake`, `engine`, `catalog`, `language` and `model`; `flows` and `cli` call it.
"""
