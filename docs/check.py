"""Checks the docs against the project: every relative link leads somewhere, every command that is named exists.

A command is a line of a code block, or code between backticks, that begins with `errata` or `make`. An errata command
is asked for its own help with all its options, so that a renamed command or option is found.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from errata.cli import main

HOUSE = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)|!\[[^\]]*\]\(([^)\s]+)[^)]*\)")
CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:\$ )?((?:errata|make)(?: .*)?)")
END_OF_COMMAND = re.compile(r"\s(?:\||>|<|&&|;|#)|[;)]$")
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


def pages(house: Path) -> list[Path]:
    """The Markdown of the project: at its top, in docs and in examples."""
    return sorted({*house.glob("*.md"), *house.glob("docs/**/*.md"), *house.glob("examples/**/*.md")})


def prose_and_blocks(text: str) -> tuple[str, list[str]]:
    """The text without its code blocks, and the lines of the code blocks with continued lines joined."""
    prose: list[str] = []
    block: list[str] = []
    fenced = False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            if block and block[-1].endswith("\\"):
                block[-1] = block[-1][:-1] + line.strip()
            else:
                block.append(line.strip())
        else:
            prose.append(line)
    return "\n".join(prose), block


def commands(text: str) -> list[str]:
    """The errata and make commands that a page names."""
    prose, block = prose_and_blocks(text)
    found = [COMMAND.fullmatch(line.strip()) for line in [*CODE.findall(prose), *block]]
    return [END_OF_COMMAND.split(match[1])[0].strip() for match in found if match]


def broken_links(page: Path) -> Iterator[str]:
    prose, _ = prose_and_blocks(page.read_text(encoding="utf-8"))
    for groups in LINK.findall(CODE.sub("", prose)):
        target = unquote((groups[0] or groups[1]).partition("#")[0])
        if target and not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
            yield f"{target} does not exist"


def alternatives(command: str) -> list[list[str]]:
    """The words of a command; `a|b` stands for one command with each, square brackets for what may be left out."""
    words = shlex.split(re.sub(r"[\[\]…]", " ", command))
    choices = [word.split("|") if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word) else [word] for word in words]
    return [list(chosen) for chosen in itertools.product(*choices)]


def ask_for_help(words: list[str]) -> str | None:
    """Why errata does not know the command; None when it does. All are asked in this process: it starts once."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([*words[1:], "--help"])
    return None if code == 0 else said.getvalue().strip()


def wrong_command(words: list[str], targets: set[str], ask: Callable[[list[str]], str | None]) -> str | None:
    if words[0] == "make":
        unknown = [word for word in words[1:] if re.fullmatch("[a-z]+", word) and word not in targets]
        return f"make has no target {', '.join(unknown)}" if unknown else None
    return ask(words)


def check(house: Path, ask: Callable[[list[str]], str | None] = ask_for_help) -> list[str]:
    """Everything that is wrong, a line each."""
    targets = set(TARGET.findall((house / "Makefile").read_text()))
    wrong = [f"{page.relative_to(house)}: {reason}" for page in pages(house) for reason in broken_links(page)]
    named = [
        (page, command, words)
        for page in pages(house)
        for command in dict.fromkeys(commands(page.read_text(encoding="utf-8")))
        for words in alternatives(command)
    ]
    distinct = {tuple(words): words for _, _, words in named}
    reasons = {key: wrong_command(words, targets, ask) for key, words in distinct.items()}
    for page, command, words in named:
        if (reason := reasons[tuple(words)]) is not None:
            wrong.append(f"{page.relative_to(house)}: `{command}`: {reason}")
    return wrong


if __name__ == "__main__":
    faults = check(HOUSE)
    sys.stderr.write("".join(f"{fault}\n" for fault in faults) or f"{len(pages(HOUSE))} pages are right\n")
    sys.exit(1 if faults else 0)
