"""The command `errata`: arguments in, text out. It may import every room; nothing imports it.

`main` is the entry point and knows each command by name only. A module holds one or two commands and is loaded when one
of them runs, so that help is quick and commands that need no Spark do not load it.
"""

from errata.cli.main import main

__all__ = ["main"]
