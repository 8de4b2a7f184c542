"""`Call`: requests as ready bytes, replies read in order, refusals raised as what they are."""

from dataclasses import replace

import pytest
from hiredis import Reader, ReplyError
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.broker.call import (
    Call,
    all_checked,
    bulks,
    call,
    checked,
    command,
    together,
    told,
    understood,
    unraised,
)
from chasquimq.broker.scripts import parse_script
from chasquimq.errors import RedisError, ServerReplyError

OOM = "OOM command not allowed when used memory > 'maxmemory'."
READONLY = "READONLY You can't write against a read only replica."
NOGROUP = "NOGROUP No such key '{chasqui:q}:stream' or consumer group 'g'"
OLD = "ERR Error running script (call to f_2f90fb1fbee46f9246a59af4da1c41e974f98258): "


def read_back(request):
    """A request is a RESP array like any reply: what the server will understand."""
    reader = Reader()
    reader.feed(request)
    return reader.gets()


# --- requests


def test_a_command_is_an_array_of_bulk_strings():
    assert command("SET", b"k\r\n", 42, "é") == (
        b"*4\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$2\r\n42\r\n$2\r\n\xc3\xa9\r\n"
    )


@given(st.lists(st.one_of(st.binary(), st.text(), st.integers()), min_size=1))
def test_whatever_goes_into_a_command_is_what_the_server_sees(arguments):
    seen = [each if isinstance(each, bytes) else str(each).encode() for each in arguments]

    assert read_back(command(*arguments)) == seen


@given(st.binary())
def test_a_bulk_string_counts_bytes(data):
    assert read_back(bulks([data])) == data


# --- one command


def test_a_call_of_one_command_reads_its_one_reply():
    made = call("GET", b"k", read=lambda reply: reply.decode())

    assert made.requests == (command("GET", b"k"),)
    assert made.parse([b"value"]) == "value"
    assert (made.repeatable, made.block_ms, made.scripts) == (True, 0, ())


def test_a_call_of_one_command_may_block_and_may_be_unrepeatable():
    made = call("BLPOP", b"k", 1, read=bool, repeatable=False, block_ms=1_000)

    assert (made.repeatable, made.block_ms) == (False, 1_000)


def test_a_refused_command_is_raised_and_never_read():
    made = call("GET", b"k", read=pytest.fail)

    with pytest.raises(ServerReplyError) as refused:
        made.parse([ReplyError("WRONGTYPE Operation against a key")])
    assert refused.value.kind == "WRONGTYPE"


WRONG_TYPE = ReplyError("WRONGTYPE Operation against a key")
SCRIPT = parse_script("two", "-- KEYS one two more...\n-- ARGV value\nreturn 1\n")


def located(made, *replies):
    with pytest.raises(ServerReplyError) as refused:
        understood(made, list(replies))
    assert refused.value.kind == "WRONGTYPE"
    return refused.value.message.removeprefix("WRONGTYPE Operation against a key")


def test_who_finds_something_else_at_a_key_is_told_at_which():
    length = call("XLEN", b"{chasqui:q}:log:1", read=int)
    assert located(length, WRONG_TYPE) == " (the key is {chasqui:q}:log:1)"
    assert located(call("GET", b"counter", read=int), WRONG_TYPE) == ""
    assert located(Call((b"no request",), length.parse), WRONG_TYPE) == ""


def test_a_script_is_about_one_of_its_keys_and_not_of_its_arguments():
    keys = {"one": b"{chasqui:q}:a", "two": b"{chasqui:q}:b"}
    made = SCRIPT.call(keys, {"value": b"{chasqui:q}:c"}, read=int)
    assert located(made, WRONG_TYPE) == " (the key is one of {chasqui:q}:a, {chasqui:q}:b)"
    many = [b"{chasqui:q}:%d" % n for n in range(6)]
    made = SCRIPT.call(keys, {"value": 1}, read=int, more_keys=many)
    assert located(made, WRONG_TYPE).endswith("{chasqui:q}:2, {chasqui:q}:3 and 2 more)")


def test_of_several_requests_the_refused_one_counts_and_in_a_transaction_all():
    first, second = (call("XLEN", b"{chasqui:q}:%d" % n, read=int) for n in range(2))
    assert located(together([first, second]), 1, WRONG_TYPE) == " (the key is {chasqui:q}:1)"
    answers = understood(together([unraised(first), unraised(second)]), [1, WRONG_TYPE])
    assert (answers[0], answers[1].message[-15:]) == (1, " {chasqui:q}:1)")
    whole = replace(together([first, second]), parse=lambda replies: all_checked(replies[-1]))
    assert located(whole, b"QUEUED", [1, WRONG_TYPE]) == (
        " (the key is one of {chasqui:q}:0, {chasqui:q}:1)"
    )


# --- several


def test_calls_travel_together_and_each_reads_its_own_replies():
    pair = Call((b"b1", b"b2"), lambda replies: ("pair", *replies))
    none = Call((), lambda replies: ("none", *replies))
    single = Call((b"a1",), lambda replies: ("single", *replies))
    joined = together([pair, none, single])

    assert joined.requests == [b"b1", b"b2", b"a1"]
    assert joined.parse([1, 2, 3]) == [("pair", 1, 2), ("none",), ("single", 3)]


def test_calls_together_are_repeatable_if_each_is_and_block_as_long_as_all():
    steady = Call((b"a",), list, block_ms=10)
    fickle = Call((b"b",), list, repeatable=False, block_ms=5)

    assert together([steady, steady]).repeatable is True
    assert together([steady, fickle]).repeatable is False
    assert together([steady, fickle]).block_ms == 15


def test_calls_together_need_each_script_once():
    first, second = (parse_script(name, f"return '{name}'") for name in "ab")
    calls = [each.call({}, {}, read=int) for each in (first, second, first)]

    joined = together(calls)
    assert len(joined.scripts) == 2
    assert set(joined.scripts) == {first, second}


def test_no_calls_together_ask_nothing():
    joined = together([])

    assert (joined.requests, joined.repeatable, joined.parse([])) == ([], True, [])


# --- refusals


@pytest.mark.parametrize("reply", [None, 0, b"", [], [ReplyError("inside")]])
def test_what_is_not_a_refusal_is_handed_on(reply):
    assert checked(reply) is reply
    assert all_checked([reply]) == [reply]


def test_the_first_refusal_of_a_pipeline_is_raised():
    with pytest.raises(ServerReplyError) as refused:
        all_checked([1, ReplyError("FIRST one"), ReplyError("SECOND one")])
    assert refused.value.kind == "FIRST"


def test_what_became_of_one_call_among_others_does_not_hide_what_became_of_them():
    calls = [call("GET", key, read=int) for key in "abcd"]

    answers = together([unraised(each) for each in calls]).parse(
        [b"1", ReplyError(OOM), b"not a number", b"4"]
    )
    assert (answers[0], answers[3]) == (1, 4)
    assert (type(answers[1]), type(answers[2])) == (ServerReplyError, RedisError)
    assert "or we misread it: ValueError: invalid literal" in answers[2].message
    assert isinstance(answers[2].__cause__, ValueError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NOGROUP, NOGROUP),
        (f"{OOM} script: on @user_script:38.", f"{OOM} script: on @user_script:38."),
        (
            f"{OLD}@user_script:38: @user_script: 38: -{OOM}",
            f"{OOM} script: on @user_script:38.",
        ),
        (
            f"{OLD}@user_script:9: @user_script: 9: -{READONLY}",
            f"{READONLY} script: on @user_script:9.",
        ),
        (f"{OLD}@user_script:5: {NOGROUP}", f"{NOGROUP} script: on @user_script:5."),
    ],
    ids=["a command", "a new server's script", "old OOM", "old READONLY", "old NOGROUP"],
)
def test_every_server_says_the_same_of_a_command_that_was_refused(text, expected):
    """Before Redis 7 a refusal inside a script hides behind an error of the script."""
    assert told(ReplyError(text)) == expected
    with pytest.raises(ServerReplyError) as refused:
        checked(ReplyError(text))
    assert refused.value.kind == expected.split()[0]


def test_a_mistake_in_a_script_itself_stays_what_it_is():
    text = f"{OLD}@user_script:9: user_script:9: attempt to index a nil value"

    assert told(ReplyError(text)) == text
