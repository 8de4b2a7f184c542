"""The command line: plays a run, prints the report, and exits with 1 if a promise was broken."""

import signal
import sys

from chaos import checker, past, report
from chaos.faults import FAULTS
from chaos.options import parse
from chaos.run import run


def main() -> int:
    """Do all that, and return the exit status."""
    options = parse(sys.argv[1:], [fault.name for fault in FAULTS])
    # An exit rather than sudden death, so that the servers and processes of the run end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    records = run(options)
    told = past.told(records)
    breaches = checker.check(told)
    show = report.to_json if options.is_json else report.to_text
    sys.stdout.write(show(options, told, breaches, records) + "\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
