"""When results are swept: what can be written, what it means, and what is said of mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.errors import UsageError
from errata.model.deferral import (
    DEFAULT_DEFERRAL,
    MAX_NESTING,
    AgeCondition,
    AllOf,
    AlwaysRule,
    AnyOf,
    Deferral,
    NeverRule,
    QueueCondition,
    TimeOfDayCondition,
)
from errata.model.time import DAY, HOUR, MINUTE, SECOND, parse_instant

NOON = parse_instant("2026-11-18T12:00")
UNITS = {"s": SECOND, "seconds": SECOND, "min": MINUTE, "minutes": MINUTE, "hours": HOUR, "day": DAY}


@dataclass(frozen=True, slots=True)
class Written:
    """A text, and what it says of a moment, worked out the long way."""

    text: str
    kind: str
    known: tuple[object, ...] = ()

    def says(self, queue: int, age: int, now: int) -> bool:
        match self.kind, self.known:
            case "queue", (int(least),):
                return not queue < least
            case "age", (int(count), str(unit)):
                return not age < count * UNITS[unit]
            case "between", (int(start), int(end)):
                return now // MINUTE % 1440 in minutes(start, end)
            case "or", parts:
                return True in [each.says(queue, age, now) for each in parts if isinstance(each, Written)]
            case "and", parts:
                return False not in [each.says(queue, age, now) for each in parts if isinstance(each, Written)]
        raise AssertionError(self.kind)


def minutes(start: int, end: int) -> set[int]:
    """The minutes of a day from one on and before another, counted one by one."""
    found: set[int] = set()
    at = start
    while at % 1440 != end % 1440 or not found:
        found.add(at % 1440)
        at += 1
    return found


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


@st.composite
def conditions(draw: st.DrawFn) -> Written:
    kind = draw(st.sampled_from(["queue", "age", "between"]))
    if kind == "queue":
        least = draw(st.integers(1, 20))
        return Written(
            draw(st.sampled_from(["queue >= {}", "queue>={}", "Queue  >= {} "])).format(least), kind, (least,)
        )
    if kind == "age":
        count, unit = draw(st.integers(1, 100)), draw(st.sampled_from(list(UNITS)))
        return Written(f"age >= {count} {unit}", kind, (count, unit))
    start = draw(st.integers(0, 1439))
    end = draw(st.integers(0, 1440).filter(lambda minute: minute % 1440 != start))
    return Written(f"between {clock(start)} and {clock(end)}", kind, (start, end))


@st.composite
def joints(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    """Some joined, with the brackets that are needed and now and then with others."""
    kind, parts = draw(st.sampled_from(["or", "and"])), draw(st.lists(inner, min_size=2, max_size=4))
    needed = [kind == "and" and each.kind == "or" for each in parts]
    texts = [
        f"({each.text})" if must or draw(st.integers(0, 5)) == 0 else each.text
        for each, must in zip(parts, needed, strict=True)
    ]
    return Written(f" {kind} ".join(texts), kind, tuple(parts))


RULES = st.recursive(conditions(), joints, max_leaves=10)
MOMENTS = st.tuples(
    st.integers(0, 25),
    st.integers(0, 200 * MINUTE) | st.integers(0, 101 * DAY) | st.integers(0, 100).map(lambda n: n * MINUTE),
    st.integers(-DAY, DAY).map(lambda off: NOON + off) | st.integers(0, 1439).map(lambda n: NOON + n * MINUTE),
)


class TestLaws:
    @given(RULES)
    def test_what_is_written_is_read_back(self, written: Written) -> None:
        read = Deferral.parse(written.text)
        assert Deferral.parse(str(read)) == read
        assert str(Deferral.parse(str(read))) == str(read)

    @given(RULES, MOMENTS)
    def test_it_is_due_when_the_text_says_so(self, written: Written, moment: tuple[int, int, int]) -> None:
        assert Deferral.parse(written.text).due(*moment) == written.says(*moment)

    @given(RULES, MOMENTS)
    def test_it_waits_for_something_unless_it_is_due(self, written: Written, moment: tuple[int, int, int]) -> None:
        read = Deferral.parse(written.text)
        assert (read.waits_for(*moment) == "waits for nothing") == read.due(*moment)

    @given(st.text(alphabet="aqe>=0159:() \n.or") | st.text(max_size=20))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        told, read = None, None
        try:
            read = Deferral.parse(text)
        except UsageError as error:
            told = error
        assert (told is None) != (read is None)
        assert told is None or (told.how and repr(text) in told.what)
        assert read is None or Deferral.parse(str(read)) == read


class TestTexts:
    @pytest.mark.parametrize(
        ("text", "rule", "canonical"),
        [
            ("always", AlwaysRule(), "always"),
            ("  NEVER ", NeverRule(), "never"),
            ("queue >= 1_000", QueueCondition(1000), "queue >= 1000"),
            ("(queue >= 3)", QueueCondition(3), "queue >= 3"),
            ("age >= 1 day 6 hours", AgeCondition(30 * HOUR), "age >= 30 hours"),
            ("age>=90min", AgeCondition(90 * MINUTE), "age >= 90 minutes"),
            ("between 1:00 and 5:30", TimeOfDayCondition(HOUR, 330 * MINUTE), "between 01:00 and 05:30"),
            ("between 22:00 and 00:00", TimeOfDayCondition(22 * HOUR, DAY), "between 22:00 and 24:00"),
            ("between 00:00 and 24:00", TimeOfDayCondition(0, DAY), "between 00:00 and 24:00"),
            (
                "queue >= 1 or (queue >= 2 or queue >= 3)",
                AnyOf((QueueCondition(1), QueueCondition(2), QueueCondition(3))),
                None,
            ),
            (
                "(queue >= 1 and queue >= 2) and queue >= 3",
                AllOf((QueueCondition(1), QueueCondition(2), QueueCondition(3))),
                None,
            ),
            (
                "queue >= 1 or queue >= 2 and queue >= 3",
                AnyOf((QueueCondition(1), AllOf((QueueCondition(2), QueueCondition(3))))),
                None,
            ),
            (
                "(queue >= 1 or queue >= 2) and queue >= 3",
                AllOf((AnyOf((QueueCondition(1), QueueCondition(2))), QueueCondition(3))),
                None,
            ),
            (
                "between 01:00 and 05:00 and age >= 1 minute and queue >= 2",
                AllOf((TimeOfDayCondition(HOUR, 5 * HOUR), AgeCondition(MINUTE), QueueCondition(2))),
                None,
            ),
        ],
    )
    def test_meanings(self, text: str, rule: object, canonical: str | None) -> None:
        read = Deferral.parse(text)
        assert read.rule == rule
        assert str(read) == canonical or (canonical is None and Deferral.parse(str(read)) == read)

    def test_brackets_stay_only_where_they_are_needed(self) -> None:
        text = "((queue >= 1) or (queue >= 2 and (queue >= 3 or (queue >= 4))))"
        assert str(Deferral.parse(text)) == "queue >= 1 or queue >= 2 and (queue >= 3 or queue >= 4)"

    @pytest.mark.parametrize(
        ("text", "what", "how"),
        [
            ("", "something is missing at the end of ''", "there is queue, age, between, always, never; an example is"),
            ("queue", "something is missing at the end of 'queue'", "queue >= and a number"),
            ("queue >=", "something is missing at the end", "a whole number of 1 or more"),
            ("quue >= 3", "'quue' cannot stand at character 1 of 'quue >= 3'", "did you mean queue?"),
            ("alway", "'alway' cannot stand at character 1", "did you mean always?"),
            ("queue > 3", "'>' cannot stand at character 7", "write queue >= and"),
            ("queue >= 0", "'0' cannot stand at character 10", "1 or more"),
            ("queue >= 1234567890123", "'1234567890123' cannot stand at character 10", "1 or more"),
            ("queue >= ten", "'ten' cannot stand at character 10", "1 or more"),
            ("queue >= 3 or Ago >= 1 hour", "'Ago' cannot stand at character 15", "did you mean age?"),
            ("queue >= 3 or always", "'always' cannot stand at character 15", "always stands alone"),
            ("never and queue >= 3", "'and' cannot stand at character 7", "never stands alone"),
            ("queue >= 3 orr age >= 1 hour", "'orr' cannot stand at character 12", "did you mean or? there is and, or"),
            ("queue >= 3)", "')' cannot stand at character 11", "there is and, or"),
            ("(queue >= 3", "something is missing at the end", "close the bracket"),
            ("(queue >= 3 queue >= 4)", "'queue' cannot stand at character 13", "close the bracket"),
            ("age >= soon", "'soon' cannot stand at character 8", "a whole number and a unit"),
            ("age >= 3", "'3' cannot stand at character 8", "a whole number and a unit"),
            ("age >= 3 and queue >= 1", "'3' cannot stand at character 8", "a whole number and a unit"),
            ("age >= 1.5 hours", "'1' cannot stand at character 8", "a whole number and a unit"),
            ("age >= 0 minutes", "'0' cannot stand at character 8", "more than zero"),
            ("between 01:00 or 05:00", "'or' cannot stand at character 15", "another time"),
            ("between 24:00 and 05:00", "'24:00' cannot stand at character 9", "from 00:00 to 23:59"),
            ("between 01:00 and 24:01", "'24:01' cannot stand at character 19", "from 00:00 to 24:00"),
            ("between 01:60 and 05:00", "'01:60' cannot stand at character 9", "a time of day, UTC"),
            ("between 1 and 5", "'1' cannot stand at character 9", "a time of day, UTC"),
            ("between 01:00 and 1:00", "'1:00' cannot stand at character 19", "two different times"),
            (
                "(" * (MAX_NESTING + 1),
                f"'(' cannot stand at character {MAX_NESTING + 1}",
                f"no more than {MAX_NESTING} deep",
            ),
        ],
    )
    def test_mistakes(self, text: str, what: str, how: str) -> None:
        with pytest.raises(UsageError) as raised:
            Deferral.parse(text)
        assert what in raised.value.what
        assert how in (raised.value.how or "")

    def test_brackets_may_be_as_deep_as_is_said(self) -> None:
        assert Deferral.parse("(" * MAX_NESTING + "queue >= 3" + ")" * MAX_NESTING) == Deferral(QueueCondition(3))


class TestDue:
    def test_always_and_never_ask_for_nothing(self) -> None:
        assert [Deferral.parse("always").due(*moment) for moment in ((0, 0, 0), (9, DAY, NOON))] == [True, True]
        assert [Deferral.parse("never").due(*moment) for moment in ((0, 0, 0), (9, DAY, NOON))] == [False, False]
        assert Deferral.parse("always") == DEFAULT_DEFERRAL

    @pytest.mark.parametrize(
        ("text", "due"),
        [
            ("between 22:00 and 02:00", {"00:00": True, "01:59": True, "02:00": False, "21:59": False, "22:00": True}),
            ("between 22:00 and 00:00", {"00:00": False, "21:59": False, "22:00": True, "23:59": True}),
            ("between 00:00 and 02:00", {"00:00": True, "01:59": True, "02:00": False, "23:59": False}),
            ("between 01:00 and 05:00", {"00:59": False, "01:00": True, "04:59": True, "05:00": False}),
        ],
    )
    def test_midnight(self, text: str, due: dict[str, bool]) -> None:
        read = Deferral.parse(text)
        # The last microsecond of a minute is still of that minute, and 1969 has had midnights, too.
        for day in ("2026-11-18", "1969-12-30"):
            began = {at: parse_instant(f"{day}T{at}") for at in due}
            assert {at: read.due(0, 0, micros) for at, micros in began.items()} == due
            assert {at: read.due(0, 0, micros + MINUTE - 1) for at, micros in began.items()} == due

    def test_it_is_due_from_the_number_and_the_age_on(self) -> None:
        read = Deferral.parse("queue >= 3 and age >= 30 minutes")
        assert [read.due(queue, 30 * MINUTE, 0) for queue in (2, 3, 4)] == [False, True, True]
        assert [read.due(3, 30 * MINUTE + off, 0) for off in (-1, 0, 1)] == [False, True, True]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("always", "waits for nothing"),
            ("never", "waits for `errata sweep`"),
            ("queue >= 3", "waits for nothing"),
            ("queue >= 10", "waits until 10 revisions have come; 3 have"),
            ("age >= 30 minutes", "waits until one has waited 30 minutes; the oldest has waited 12 minutes"),
            ("between 22:00 and 02:00", "waits until it is between 22:00 and 02:00 UTC; it is 12:00"),
            (
                "age >= 1 hour or queue >= 10",
                "waits until one has waited 1 hour or 10 revisions have come; 3 have, the oldest has waited 12 minutes",
            ),
            # What holds already is not waited for.
            ("(queue >= 2 or age >= 1 day) and queue >= 4", "waits until 4 revisions have come; 3 have"),
            (
                "(queue >= 4 or age >= 1 hour and queue >= 2) and between 00:00 and 01:00",
                "waits until (4 revisions have come or one has waited 1 hour) and it is between 00:00 and 01:00 UTC; "
                "3 have, the oldest has waited 12 minutes, it is 12:00",
            ),
        ],
    )
    def test_what_is_waited_for(self, text: str, words: str) -> None:
        assert Deferral.parse(text).waits_for(3, 12 * MINUTE + 13_000_007, NOON) == words

    def test_how_things_stand(self) -> None:
        read = Deferral.parse("queue >= 2")
        assert [read.waits_for(queue, 0, NOON).partition("; ")[2] for queue in (0, 1)] == ["none has", "1 has"]
        one = Deferral.parse("queue >= 1").waits_for(0, 0, NOON)
        assert one == "waits until 1 revision has come; none has"

    @pytest.mark.parametrize(
        ("age", "words"),
        [
            (-5, "0 seconds"),
            (179 * SECOND + 999_999, "179 seconds"),
            (180 * SECOND + 1, "3 minutes"),
            (179 * MINUTE + 59 * SECOND, "179 minutes"),
            (71 * HOUR + 59 * MINUTE, "71 hours"),
            (80 * HOUR, "3 days"),
        ],
    )
    def test_an_age_is_told_no_finer_than_it_matters(self, age: int, words: str) -> None:
        told = Deferral.parse("age >= 9 weeks").waits_for(1, age, NOON)
        assert told == f"waits until one has waited 63 days; the oldest has waited {words}"
