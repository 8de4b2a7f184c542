"""`refusal.py`: which answers mean "not carried out, try otherwise", and what to do about each."""

import pytest
from hiredis import ReplyError

from chasquimq.broker.refusal import Cure, refusals
from chasquimq.broker.url import Address

HOST = "10.0.0.1"
OLD = "ERR Error running script (call to f_eb7773492de5f3d9260e4dc3345421fa088d76d8): "
NEW = "script: eb7773492de5f3d9260e4dc3345421fa088d76d8, on @user_script:38."
REPLICA = "READONLY You can't write against a read only replica."

DEMOTED = (
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)


def found(*replies):
    return refusals(replies, range(len(replies)), HOST)


CURES = {
    "NOSCRIPT No matching script.": Cure.LOAD_SCRIPTS,
    "NOSCRIPT No matching script. Please use EVAL.": Cure.LOAD_SCRIPTS,
    "LOADING Redis is loading the dataset in memory": Cure.WAIT,
    "TRYAGAIN Multiple keys request during rehashing of slot": Cure.WAIT,
    "CLUSTERDOWN The cluster is down": Cure.WAIT,
    "CLUSTERDOWN Hash slot not served": Cure.WAIT,
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": (
        Cure.WAIT
    ),
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": (
        Cure.RECONNECT
    ),
    "NOREPLICAS Not enough good replicas to write.": Cure.RECONNECT,
    DEMOTED: Cure.RECONNECT,
    REPLICA: Cure.RECONNECT,
    f"{REPLICA} {NEW}": Cure.RECONNECT,
    f"{OLD}@user_script:38: @user_script: 38: -{REPLICA}": Cure.RECONNECT,
}


@pytest.mark.parametrize(("text", "cure"), CURES.items())
def test_a_refusal_that_is_ours_to_cure_has_its_cure(text, cure):
    (refusal,) = found(ReplyError(text))

    assert (refusal.index, refusal.cure, refusal.address) == (0, cure, None)


@pytest.mark.parametrize(
    ("text", "cure", "address"),
    [
        ("MOVED 3999 10.0.0.2:6381", Cure.MOVE, Address("10.0.0.2", 6381)),
        ("MOVED 3999 node-2.example:6381", Cure.MOVE, Address("node-2.example", 6381)),
        ("MOVED 3999 :6381", Cure.MOVE, Address(HOST, 6381)),
        ("MOVED 3999 2001:db8::2:6381", Cure.MOVE, Address("2001:db8::2", 6381)),
        ("MOVED 3999 [2001:db8::2]:6381", Cure.MOVE, Address("2001:db8::2", 6381)),
        ("ASK 3999 10.0.0.2:6381", Cure.ASK, Address("10.0.0.2", 6381)),
    ],
)
def test_a_redirection_says_where_to(text, cure, address):
    (refusal,) = found(ReplyError(text))

    assert (refusal.cure, refusal.address) == (cure, address)


@pytest.mark.parametrize(
    "text",
    [
        "ERR unknown command 'XACKDEL'",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "BUSYGROUP Crew Group name already exists",
        "NOGROUP No such key or consumer group",
        f"OOM command not allowed when used memory > 'maxmemory'. {NEW}",
        f"{OLD}@user_script:38: @user_script: 38: -OOM command not allowed",
        f"{OLD}@user_script:9: user_script:9: READONLY is what the script itself said",
        "UNBLOCKED client unblocked via CLIENT UNBLOCK",
        "MOVED 3999 nowhere",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "ERR Error running script: MOVED 3999 10.0.0.2:6381",
        "",
    ],
)
def test_every_other_error_is_the_callers(text):
    assert found(ReplyError(text)) == []


def test_answers_are_not_refusals_whatever_they_say():
    assert found(b"MOVED 3999 10.0.0.2:6381", None, 1, [ReplyError("NOSCRIPT inside")]) == []


def test_in_a_pipeline_each_refusal_keeps_its_place():
    replies = [b"OK", ReplyError("NOSCRIPT x"), ReplyError("ERR x"), ReplyError("ASK 1 h:2")]

    assert [(each.index, each.cure) for each in found(*replies)] == [
        (1, Cure.LOAD_SCRIPTS),
        (3, Cure.ASK),
    ]
