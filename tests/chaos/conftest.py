"""Runs of programs of `chaos`, from outside."""

import subprocess
import sys

import pytest

from tests.support.servers import ROOT


@pytest.fixture
def play():
    """`play(module, ...)`: the exit status of a program that prints JSON, and what it printed."""

    def run(module, *arguments):
        command = [sys.executable, "-m", module, "--json", *arguments]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                told, said = program.communicate()
            finally:
                program.terminate()  # not killed: it has servers to end
        return program.returncode, told, said

    return run
