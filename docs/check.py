"""Checks the docs against the project: relative links lead to a page and a heading, and what is named exists.

Commands: a line of a code block, or code between backticks, that begins with `errata` or `make`. An errata command is
asked for its own help with all its options, so that a renamed command or option is found.

Code: between backticks, a path that ends in `.py`, within the project or within src/errata, and behind a colon the name
of a function or class that the file defines: `model/bucket.py:Bucket`, `catalog/pins.py:Pin.check`. A name in
capitals, as in `jobs/NAME.py`, stands for any.
"""

from __future__ import annotations

import ast
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
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
NAMED_CODE = re.compile(r"(?:[A-Za-z_.]\w*/)*\w+\.py(?::[A-Za-z_][\w.]*)?")
"""A Python file, and behind a colon a name that it defines."""


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
        link = groups[0] or groups[1]
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        file = page.parent / target if target else page
        if not file.exists():
            yield f"{target} does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{link} leads to no heading"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose, _ = prose_and_blocks(page.read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    for heading in HEADING.findall(prose):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    return {slug if not number else f"{slug}-{number}" for slug, count in found.items() for number in range(count)}


def wrong_code_names(house: Path, page: Path) -> Iterator[str]:
    """Files and names of the code that a page names and that are not there."""
    prose, _ = prose_and_blocks(page.read_text(encoding="utf-8"))
    for code in dict.fromkeys(CODE.findall(prose)):
        if NAMED_CODE.fullmatch(code) and not re.search(r"[A-Z]{4}.*\.py", code):
            path, _, name = code.partition(":")
            roots = (page.parent, house, house / "src" / "errata", house / "plugins" / "errata_airflow")
            file = next((root / path for root in roots if (root / path).is_file()), None)
            if file is None:
                yield f"{path} is no file"
            elif name and not defines(file.read_text(encoding="utf-8"), name):
                yield f"{path} does not define {name}"


def defines(source: str, name: str) -> bool:
    """Whether a module defines a function, a class, a constant, or an attribute of a class (`Class.attribute`)."""
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        found = [node for node in body if part in _names_of(node)]
        if not found:
            return False
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


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
    wrong = [
        f"{page.relative_to(house)}: {reason}"
        for page in pages(house)
        for reason in itertools.chain(broken_links(page), wrong_code_names(house, page))
    ]
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
