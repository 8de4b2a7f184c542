"""Warnings of failed runs are made only where somebody would see them."""

import logging

import pytest

from chasquimq.engine.settlement import is_heard


def a_logger():
    """A logger of a library, with the handler that drops everything and no other, pytest's too."""
    library = logging.getLogger("test-of-heard")
    library.propagate = False
    library.handlers[:] = [logging.NullHandler()]
    return logging.getLogger("test-of-heard.engine")


def test_a_handler_that_drops_everything_hears_nothing():
    logger = a_logger()
    assert logger.hasHandlers()
    assert not is_heard(logger)


@pytest.mark.parametrize("owner", ["test-of-heard.engine", "test-of-heard"])
def test_any_other_handler_up_the_line_hears(owner):
    logger, handler = a_logger(), logging.StreamHandler()
    logging.getLogger(owner).addHandler(handler)
    assert is_heard(logger)
    logging.getLogger(owner).removeHandler(handler)
    assert not is_heard(logger)


def test_a_level_above_warnings_hears_none():
    logger = a_logger()
    logger.parent.addHandler(logging.StreamHandler())
    logger.setLevel(logging.ERROR)
    assert not is_heard(logger)
    logger.setLevel(logging.NOTSET)
    assert is_heard(logger)


def test_without_any_handler_python_prints_it(capsys):
    logger = a_logger()
    logger.parent.handlers.clear()
    assert is_heard(logger)
    logger.warning("told by the last resort")
    assert "told by the last resort" in capsys.readouterr().err


def test_a_filter_sees_it(monkeypatch):
    logger = a_logger()
    monkeypatch.setattr(logger, "filters", [lambda record: True])
    assert is_heard(logger)


def test_who_stands_before_the_handlers_sees_it(monkeypatch):
    logger, seen = a_logger(), []
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda _, record: seen.append(record))
    assert is_heard(logger)
