"""Pages of answers: which rows of which answer are asked for, and in which form.

A cursor names the answer, not only the place in it: the commit, the event time and the number of the first row. So the
pages of an answer are those of one answer, whatever is committed between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from starlette.responses import Response

from errata.errors import UsageError
from errata.model.columns import parse_digits
from errata.model.time import HIGHEST, LOWEST
from errata.psoup.answer_text import arrow_answer, csv_answer, event_time, json_answer
from errata.psoup.following import Answer

_CURSOR = re.compile(r"([0-9]{1,18})\.(-?[0-9]{1,19})\.([0-9]{1,18})", re.ASCII)
_COMMIT = re.compile(r"[0-9]{1,18}", re.ASCII)


class AnswerFormat(StrEnum):
    """The forms in which an answer is sent."""

    JSON = "application/json"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which rows of which answer."""

    handle: str
    at: str | int | None
    """The event time, as it is written or as it is stored; None: the least stable point of the sources."""
    as_of: int | None
    """The commit; None: the newest."""
    first: int
    limit: int
    form: AnswerFormat


@dataclass(frozen=True)
class AnswerPage:
    """A page that is ready to be sent."""

    body: bytes
    form: AnswerFormat
    commit_id: int
    now: str
    next_cursor: str | None

    def response(self) -> Response:
        response = Response(self.body)
        response.raw_headers = list(self.raw_headers)
        return response

    @cached_property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of a response."""
        kind = f"{self.form.value}; charset=utf-8" if self.form is AnswerFormat.CSV else self.form.value
        headers = {
            "content-length": str(len(self.body)),
            "content-type": kind,
            "cache-control": "no-store",
            "errata-commit": str(self.commit_id),
            "errata-now": self.now,
        }
        if self.next_cursor is not None:
            headers["errata-next-cursor"] = self.next_cursor
        return [(name.encode(), value.encode()) for name, value in headers.items()]


def chosen_format(accept: str | None) -> AnswerFormat | None:
    """The form that an Accept header wants most; None if it wants none that there is."""
    if accept is None or accept in ("", "*/*"):
        return AnswerFormat.JSON
    wanted: list[tuple[float, AnswerFormat]] = []
    for part in accept.split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        matching = [form for form in AnswerFormat if _accepts(kind.lower(), form)]
        weight = float(quality) if re.fullmatch(r"[01](\.[0-9]{0,3})?", quality) else 0.0
        wanted += [(weight, matching[0])] if matching and weight > 0.0 else []
    return max(wanted, key=lambda each: each[0])[1] if wanted else None


def _accepts(kind: str, form: AnswerFormat) -> bool:
    return kind in ("*/*", form.value, form.value.partition("/")[0] + "/*")


def parse_commit(text: str, where: str) -> int:
    """The commit that a parameter or a header names."""
    if not _COMMIT.fullmatch(text):
        raise UsageError(f"{text[:40]!r} is not the number of a commit", where=where, how="leave it out for the newest")
    return parse_digits(text)


def parse_cursor(cursor: str) -> tuple[int, int, int]:
    """The commit, the event time and the first row."""
    found = _CURSOR.fullmatch(cursor)
    if found is None or not LOWEST <= int(found[2]) <= HIGHEST:
        raise _foreign_cursor()
    return int(found[1]), int(found[2]), int(found[3])


def _foreign_cursor() -> UsageError:
    return UsageError("the cursor is none of this service", where="cursor", how="take it from the page before")


def write_page(answer: Answer, asked: PageRequest) -> AnswerPage:
    """The page of an answer. The order of its rows depends on nothing but the answer: see `psoup/invoke.py`."""
    total = answer.rows.num_rows
    end = asked.first + asked.limit
    rows = answer.rows.slice(min(asked.first, total), asked.limit)
    cursor = f"{answer.commit_id}.{answer.now}.{end}" if end < total else None
    try:
        now = str(event_time(answer.now, timed=answer.timed))
    except OverflowError:  # no calendar goes that far, and no page before led there
        raise _foreign_cursor() from None
    if asked.form is AnswerFormat.JSON:
        body = json_answer(answer, rows, {"total": total, "next": cursor})
    else:
        body = csv_answer(rows) if asked.form is AnswerFormat.CSV else arrow_answer(rows)
    return AnswerPage(body, asked.form, answer.commit_id, now, cursor)
