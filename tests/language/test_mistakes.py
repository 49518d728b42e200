from __future__ import annotations

import pickle

import pytest

from errata.errors import EXIT_USAGE
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import parse_sql

SQL = "SELECT a\nFROM t\nWHERE wrong > 5 AND b IS NULL"


def test_the_error_shows_the_line_and_marks_the_place() -> None:
    text = SqlText(SQL, "queries/avg.sql")
    (compared, _) = parse_sql(text).args["where"].this.flatten()
    assert str(text.mistake(compared.this, "unknown column 'wrong'", why="t has a", how="write a")) == (
        "queries/avg.sql:3:7: unknown column 'wrong'\n"
        "    WHERE wrong > 5 AND b IS NULL\n"
        "          ^^^^^\n"
        "  why: t has a\n"
        "  how to mend: write a"
    )


def test_an_operator_is_marked_from_its_first_part_to_its_last() -> None:
    text = SqlText(SQL, "q")
    (compared, asked) = parse_sql(text).args["where"].this.flatten()
    assert _marked(text.mistake(compared, "x")) == "wrong > 5"
    assert _marked(text.mistake(asked.expression, "x")) == "NULL", "it knows no place, and stands after one that does"


@pytest.mark.parametrize(
    ("place", "marked", "line", "column"),
    [((9, 13), "FROM", 2, 1), (0, "S", 1, 1), (10_000, "", 3, 30), (-5, "S", 1, 1), ((0, 15), "SELECT a", 1, 1)],
)
def test_a_place_may_be_given_by_offsets(place: int | tuple[int, int], marked: str, line: int, column: int) -> None:
    error = SqlText(SQL, "q").mistake(place, "x")
    assert (_marked(error), error.line, error.column) == (marked, line, column)
    assert error.where == f"q:{line}:{column}"


def test_a_long_line_is_shown_around_the_place() -> None:
    sql = f"SELECT {'a, ' * 1_000}wrong{', a' * 1_000} FROM t"
    error = SqlText(sql, "q").mistake(sql.index("wrong"), "x")
    assert "wrong" in error.excerpt
    assert max(map(len, error.excerpt.splitlines())) < 200


def test_characters_that_cannot_be_shown_take_one_place() -> None:
    error = SqlText("SELECT\t\0wrong", "q").mistake((8, 13), "x")
    assert error.excerpt == "    SELECT  wrong\n            ^^^^^"


def test_an_error_survives_a_process_border() -> None:
    error = SqlText(SQL, "q").mistake((9, 13), "what", "why", "how")
    other = pickle.loads(pickle.dumps(error))
    assert isinstance(other, LanguageError)
    assert (str(other), other.line, other.column) == (str(error), 2, 1)
    assert other.exit_code == EXIT_USAGE


def _marked(error: LanguageError) -> str:
    line, carets = error.excerpt.splitlines()
    return "".join(each for each, caret in zip(line, carets, strict=False) if caret == "^")
