"""The command line: plays a run, prints the report, and exits with 1 if a promise was broken."""

import shutil
import signal
import sys
import tempfile
from pathlib import Path

from chaos import checker, past, report
from chaos.faults import FAULTS
from chaos.options import Options, parse
from chaos.run import run
from chaos.saying import say


def main() -> int:
    """Do all that, and return the exit status."""
    options = parse(sys.argv[1:], [fault.name for fault in FAULTS])
    # An exit rather than sudden death, so that the servers and processes of the run end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = options.keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    status: int | None = None
    try:
        status = _play(options, folder)
    finally:
        # The same seed breaks the same things, and hardly ever in the same moment again.
        if status != 0 or options.keep:
            say(f"the history is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _play(options: Options, folder: Path) -> int:
    records = run(options, folder)
    told = past.told(records)
    breaches = checker.check(told)
    show = report.to_json if options.is_json else report.to_text
    sys.stdout.write(show(options, told, breaches, records) + "\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
