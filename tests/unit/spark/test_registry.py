"""Every format is found by its name; a password that Spark's pages would show is refused."""

import importlib

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark.registry import FORMATS, SOURCES, check_hidden

SECRET = "redis://:hush@127.0.0.1:1"  # noqa: S105 -- nobody's
SPARKS_DEFAULT = "(?i)secret|password|token|access[.]?key"


@pytest.mark.parametrize("pattern", [SPARKS_DEFAULT, "url.chasquimq"])
def test_a_password_that_would_be_shown_is_refused(pattern):
    with pytest.raises(ConfigError, match=r"let spark\.redaction\.regex match") as refused:
        check_hidden(SECRET, pattern)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("pattern", [SPARKS_DEFAULT + "|chasquimq[.]url", "x|(?i)URL", ""])
def test_a_password_that_is_hidden_is_fine(pattern):
    check_hidden(SECRET, pattern)


def test_a_url_without_a_password_may_be_seen():
    check_hidden("redis://127.0.0.1:1", SPARKS_DEFAULT)


def test_what_is_no_url_is_refused_under_the_name_of_the_setting():
    with pytest.raises(ConfigError, match=r"spark\.chasquimq\.url: ") as refused:
        check_hidden("redis://:hush@host:port", SPARKS_DEFAULT)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("source", SOURCES, ids=FORMATS)
def test_a_format_is_where_spark_looks_for_it(source):
    """That Spark looks there is seen by tests/spark/test_own_sessions.py."""
    assert importlib.import_module(f"pyspark_{source.name()}").DefaultSource is source
