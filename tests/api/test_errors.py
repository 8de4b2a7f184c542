"""One hierarchy, a stable code in every message; errors arrive whole in another process.

Argument mistakes are not in it: they stay `ValueError` and `TypeError`.
"""

import asyncio
import copy
import pickle

import pytest

import chasquimq
from chasquimq import ChasquiError, DlqReason, JobFailedError, ServerReplyError, UnrecoverableError

CODES = {
    "ChasquiError": ("CMQ-000", ""),
    "RedisError": ("CMQ-001", "redis: "),
    "ConnectionFailedError": ("CMQ-001", "redis: "),
    "OutcomeUnknownError": ("CMQ-001", "redis: "),
    "ReplyTooLargeError": ("CMQ-001", "redis: "),
    "ServerReplyError": ("CMQ-001", "redis: "),
    "ServerTooOldError": ("CMQ-001", "redis: "),
    "EncodeError": ("CMQ-002", "encode: "),
    "DecodeError": ("CMQ-003", "decode: "),
    "ConfigError": ("CMQ-004", "config: "),
    "ShutdownError": ("CMQ-005", "shutdown: "),
    "QueueFullError": ("CMQ-006", "queue full: "),
    "QueueBusyError": ("CMQ-007", "queue busy: "),
    "HandlerError": ("CMQ-010", ""),
    "UnrecoverableError": ("CMQ-011", ""),
    "JobFailedError": ("CMQ-012", ""),
    "RateLimitError": ("CMQ-101", ""),
    "WaitForResultTimeoutError": ("CMQ-102", ""),
    "NotSupportedError": ("CMQ-200", ""),
}
HAS_A_BARE_MESSAGE = {"UnrecoverableError", "HandlerError"}


def an_error(name):
    kind = getattr(chasquimq, name)
    return (
        kind("job-1", "unrecoverable", "ValueError: x") if name == "JobFailedError" else kind("x")
    )


def test_every_public_error_is_in_this_table():
    found = {
        name
        for name in chasquimq.__all__
        if isinstance(getattr(chasquimq, name), type)
        and issubclass(getattr(chasquimq, name), BaseException)
    }
    assert found == set(CODES)


@pytest.mark.parametrize("name", CODES)
def test_an_error_is_a_runtime_error_with_its_code_and_the_documented_beginning(name):
    error = an_error(name)
    code, prefix = CODES[name]
    assert isinstance(error, ChasquiError)
    assert isinstance(error, RuntimeError)
    assert error.code == code
    assert str(error).startswith(prefix)
    if name not in HAS_A_BARE_MESSAGE:
        assert str(error).endswith(f" [{code}]")


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("carry", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])  # noqa: S301
def test_an_error_arrives_unchanged_in_another_process(name, carry):
    error = an_error(name)
    arrived = carry(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived.args == error.args
    assert vars(arrived) == vars(error)


def test_waiting_too_long_is_the_timeout_that_asyncio_raises():
    assert issubclass(chasquimq.WaitForResultTimeoutError, asyncio.TimeoutError)


def test_a_failed_job_says_which_why_and_what_its_handler_raised():
    error = JobFailedError("job-1", "unrecoverable", "ValueError: no such user")
    assert (error.job_id, error.reason, error.error) == (
        "job-1",
        "unrecoverable",
        "ValueError: no such user",
    )
    assert str(error) == "job job-1 failed (unrecoverable): ValueError: no such user [CMQ-012]"
    assert str(JobFailedError("job-1", "stalled")) == "job job-1 failed (stalled) [CMQ-012]"


def test_the_servers_own_word_for_an_error_is_kept():
    assert ServerReplyError("WRONGTYPE Operation against a key").kind == "WRONGTYPE"


@pytest.mark.parametrize(
    "arguments", [(), ("no such user",), ("no such user", 404), (404,)], ids=str
)
def test_an_unrecoverable_error_takes_arguments_as_any_exception_does_and_shows_them(arguments):
    assert str(UnrecoverableError(*arguments)) == str(RuntimeError(*arguments))


def test_an_unrecoverable_error_can_be_subclassed_with_an_init_of_its_own():
    class NoSuchUserError(UnrecoverableError):
        def __init__(self, user_id):
            self.user_id = user_id

    error = copy.copy(NoSuchUserError(404))
    assert error.user_id == 404
    assert error.code == "CMQ-011"


def test_every_dead_letter_reason_has_its_word_and_its_code():
    assert {str(reason): reason.code for reason in DlqReason if reason != "stalled"} == {
        "retries_exhausted": "CMQ-020",
        "decode_failed": "CMQ-021",
        "malformed": "CMQ-022",
        "oversize_payload": "CMQ-023",
        "unrecoverable": "CMQ-024",
    }
