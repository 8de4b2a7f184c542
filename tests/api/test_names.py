"""What can be imported from the package, and as what it presents itself."""

import importlib
import importlib.metadata
import logging
import re
import subprocess
import sys

import pytest

import chasquimq
import chasquimq.engine

PUBLIC = {
    # the documented names
    "Queue", "Worker", "Job", "QueueEvents", "QueueEvent", "RepeatPattern", "BackoffSpec",
    "MissedFiresPolicy", "RepeatableMeta", "UnrecoverableError", "NotSupportedError", "version",
    "Handler", "DelayMsLike", "BackoffLike", "RepeatLike", "MissedFiresLike",
    "Producer", "Consumer", "Scheduler",
    # ours
    "SyncQueue", "RetryConfig", "Counts", "JobState", "JobResult", "OutcomeStatus", "DlqReason",
    "CredentialProvider", "ChasquiError", "RedisError", "ConnectionFailedError",
    "OutcomeUnknownError", "ServerReplyError", "ServerTooOldError", "EncodeError", "DecodeError",
    "ConfigError", "ShutdownError", "QueueFullError", "JobFailedError", "RateLimitError",
    "WaitForResultTimeoutError", "next_fires", "describe", "HandlerError",
    "JobsPage", "JobLogs", "QueueBusyError", "FlowProducer", "encode_payload", "decode_payload",
    "Chasqui", "Task", "ReplyTooLargeError",
}  # fmt: skip

ENGINE = {
    "Producer", "Consumer", "Promoter", "Scheduler", "ProducerConfig", "ConsumerConfig",
    "PromoterConfig", "SchedulerConfig", "RetryConfig", "Job", "JobId", "Handler", "AddOptions",
    "JobRetryOverride", "BackoffSpec", "BackoffKind", "RepeatableSpec", "RepeatableMeta",
    "RepeatPattern", "MissedFiresPolicy", "HandlerError", "UnrecoverableError", "DlqEntry",
    "DlqReason",
}  # fmt: skip


def test_the_public_names_are_these_and_no_others():
    assert set(chasquimq.__all__) == PUBLIC
    assert len(chasquimq.__all__) == len(PUBLIC)


def test_the_public_names_of_the_engine_are_these_and_no_others():
    assert set(chasquimq.engine.__all__) == ENGINE
    assert len(chasquimq.engine.__all__) == len(ENGINE)


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_every_public_name_of_the_engine_can_be_found_where_it_says_it_is(name):
    value = getattr(chasquimq.engine, name)
    if isinstance(value, type) and value is not str:
        assert value.__doc__
        home = importlib.import_module(value.__module__)
        assert getattr(home, value.__qualname__) is value, "pickle looks there"


def test_names_in_both_places_are_the_same_but_for_the_job_and_its_handler():
    both = PUBLIC & ENGINE
    different = {
        name for name in both if getattr(chasquimq, name) is not getattr(chasquimq.engine, name)
    }
    assert different == {"Job", "Handler"}


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


def test_every_module_below_the_package_can_be_the_first_that_is_imported():
    """The package loads its names late, so nothing has brought the modules into an order."""
    program = """
import importlib, pkgutil, sys, chasquimq
found = [each.name for each in pkgutil.iter_modules(chasquimq.__path__) if each.name[0] != "_"]
assert "queue" in found
for name in found:
    for loaded in [each for each in sys.modules if each.split(".")[0] == "chasquimq"]:
        del sys.modules[loaded]
    importlib.import_module(f"chasquimq.{name}")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr


def test_a_module_and_a_name_are_both_found_on_the_package_alone():
    program = (
        "import chasquimq; assert chasquimq.errors.ChasquiError is chasquimq.ChasquiError; "
        "assert 'Queue' in dir(chasquimq); assert not hasattr(chasquimq, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
