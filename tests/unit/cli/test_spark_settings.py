"""What `chasqui worker --engine spark` hands to Spark."""

import pytest
from click.testing import CliRunner

from chasquimq.cli import worker
from chasquimq.cli.spark import spark_settings

QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


@pytest.mark.parametrize(
    ("arguments", "handed"),
    [
        ([], QUIET),
        (["--master", "local[3]"], QUIET | {"spark.master": "local[3]"}),
        (
            ["--conf", "spark.master=local[3]", "--conf", "spark.executor.extraJavaOptions=-Da=b"],
            QUIET | {"spark.master": "local[3]", "spark.executor.extraJavaOptions": "-Da=b"},
        ),
        (["--master", "local", "--conf", "spark.master=local"], QUIET | {"spark.master": "local"}),
        (["--conf", "spark.log.level=INFO"], QUIET | {"spark.log.level": "INFO"}),
        (["--verbose", "--master", "local"], {"spark.master": "local"}),
    ],
)
def test_settings_go_to_spark_as_they_are_and_it_is_quiet_unless_asked(
    monkeypatch, arguments, handed
):
    seen = {}
    monkeypatch.setattr(worker, "run_fleet", lambda *_, **given: seen.update(given))
    done = CliRunner().invoke(
        worker.command, ["tasks:handle", "emails", "--engine", "spark", *arguments]
    )
    assert done.exit_code == 0, done.output
    assert spark_settings(seen["conf"], is_verbose=seen["is_verbose"]) == handed


@pytest.mark.parametrize(
    ("arguments", "handed"),
    [
        ([], {}),
        (["--slots", "3"], {"slots": 3}),
        (
            ["--batch", "arrow", "--batch-size", "50", "--schema", "x long"],
            {"batch": "arrow", "batch_size": 50, "schema": "x long"},
        ),
        (["--batch", "pandas"], {"batch": "pandas"}),
    ],
)
def test_what_only_a_fleet_has_goes_to_it_and_what_is_left_out_has_its_own_default(
    monkeypatch, arguments, handed
):
    seen = []
    monkeypatch.setattr(worker, "run_fleet", lambda settings, fleet, **_: seen.append(fleet))
    line = ["tasks:handle", "emails", "--engine", "spark", *arguments]
    done = CliRunner().invoke(worker.command, line)
    assert (done.exit_code, seen) == (0, [handed]), done.output
