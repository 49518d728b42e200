"""The command `errata`, and nothing else: arguments in, words out. May import every room; nothing imports it.

`main` is the door. A module holds a command or two and is loaded when one of them is run, so that help is quick and
what needs no Spark never waits for it.
"""

from errata.cli.main import main

__all__ = ["main"]
