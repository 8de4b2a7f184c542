"""The types of the public API are what `api.py` beside this file says they are."""

import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).with_name("api.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_mypy_sees_the_public_api_as_users_are_promised():
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(API)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0
