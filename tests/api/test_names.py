"""What can be imported from the package, and as what it presents itself."""

import importlib.metadata
import logging
import re

import pytest

import chasquimq

PUBLIC = {
    # the documented names
    "Queue", "Worker", "Job", "QueueEvents", "QueueEvent", "RepeatPattern", "BackoffSpec",
    "MissedFiresPolicy", "RepeatableMeta", "UnrecoverableError", "NotSupportedError", "version",
    "Handler", "DelayMsLike", "BackoffLike", "RepeatLike", "MissedFiresLike",
    # ours
    "SyncQueue", "RetryConfig", "Counts", "JobState", "JobResult", "OutcomeStatus", "DlqReason",
    "CredentialProvider", "ChasquiError", "RedisError", "ConnectionFailedError",
    "OutcomeUnknownError", "ServerReplyError", "ServerTooOldError", "EncodeError", "DecodeError",
    "ConfigError", "ShutdownError", "QueueFullError", "JobFailedError",
    "WaitForResultTimeoutError", "next_fires", "describe",
    "JobsPage", "JobLogs", "QueueBusyError", "FlowProducer", "encode_payload", "decode_payload",
    "Chasqui", "Task",
}  # fmt: skip


def test_the_public_names_are_these_and_no_others():
    assert set(chasquimq.__all__) == PUBLIC
    assert len(chasquimq.__all__) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there_and_says_what_it_is(name):
    value = getattr(chasquimq, name)
    if isinstance(value, type):
        assert value.__module__ == "chasquimq", "shown under the package, not where it lives"
        assert value.__doc__


def test_the_version_is_that_of_the_installed_package():
    assert chasquimq.version() == importlib.metadata.version("chasquimq")
    assert re.match(r"\d+\.\d+", chasquimq.version())


def test_the_library_logs_nothing_unless_the_program_asks_for_it():
    handlers = logging.getLogger("chasquimq").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
