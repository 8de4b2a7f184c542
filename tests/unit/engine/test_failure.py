"""What is kept of an error that a handler raised."""

import traceback

import pytest

from chasquimq.engine.failure import failed

NO_WAY = "no way"


def raised(fail):
    """The error that a function raises, with its traceback."""
    try:
        fail()
    except BaseException as error:  # noqa: BLE001 -- whatever it is
        return error
    pytest.fail("it raised nothing")


def divide():
    return 1 / 0


def with_text(text):
    def fail():
        raise ValueError(text)

    return fail


def with_notes():
    error = KeyError("k")
    error.add_note("look in the cellar")
    raise error


def from_another():
    try:
        divide()
    except ZeroDivisionError as error:
        raise RuntimeError(NO_WAY) from error


def while_handling():
    try:
        divide()
    except ZeroDivisionError:
        raise RuntimeError(NO_WAY)  # noqa: B904 -- just that


def hidden():
    try:
        divide()
    except ZeroDivisionError:
        raise RuntimeError(NO_WAY) from None


def several():
    raise ExceptionGroup(NO_WAY, [ValueError(1), ValueError(2)])


def misspelt():
    return dvide()  # noqa: F821


def unreadable_code():
    compile("a b", "config", "exec")


class Odd(Exception):  # noqa: N818 -- as users name them
    """One whose text cannot be had, within another."""

    class Within(Exception):  # noqa: N818
        pass

    def __str__(self):
        raise KeyError


def without_text():
    raise Odd


def nested():
    raise Odd.Within(NO_WAY)


def endless():
    return endless()


@pytest.mark.parametrize(
    "fail",
    [divide, with_text("x"), with_text(""), with_text("a\nb"), with_notes, from_another,
     while_handling, hidden, several, misspelt, unreadable_code, without_text, nested, endless],
    ids=lambda fail: fail.__qualname__,
)  # fmt: skip
def test_a_traceback_is_that_of_the_standard_library_the_first_time_and_every_other(fail):
    for _ in range(3):
        error = raised(fail)
        right = "".join(traceback.format_exception(error))
        kept = failed(error).traceback
        assert kept == right or kept.endswith(right[-8_192:])


def test_the_same_line_tells_the_text_of_each_error():
    first, second = (failed(raised(with_text(text))) for text in ("one", "two"))
    assert "ValueError: one" in first.traceback
    assert "ValueError: two" in second.traceback
    assert "ValueError: one" not in second.traceback


def test_code_that_is_equal_in_two_files_is_told_apart():
    source = "def fail():\n    raise ValueError('x')\n"
    told = []
    for name in ("here.py", "there.py"):
        names = {}
        exec(compile(source, name, "exec"), names)  # noqa: S102 -- ours
        told.append(failed(raised(names["fail"])).traceback)
    assert "here.py" in told[0]
    assert "there.py" in told[1]


class EmptyError(Exception):
    """An error that is false."""

    def __len__(self):
        return 0


class UnsureError(Exception):
    """An error that is neither true nor false."""

    def __bool__(self):
        raise RuntimeError(NO_WAY)


def from_an_empty_one():
    raise ValueError(NO_WAY) from EmptyError("the cause")


def from_an_unsure_one():
    raise ValueError(NO_WAY) from UnsureError("the cause")


def test_a_cause_that_is_false_is_told():
    assert "EmptyError: the cause" in failed(raised(from_an_empty_one)).traceback


def test_no_error_is_too_odd_to_end_a_run():
    assert failed(raised(from_an_unsure_one)).error == "ValueError: no way"


def test_code_that_cannot_be_hashed_is_told_like_any_other():
    def fail():
        raise ValueError(NO_WAY)

    fail.__code__ = fail.__code__.replace(co_consts=(*fail.__code__.co_consts, []))
    assert failed(raised(fail)).traceback.endswith("ValueError: no way\n")
