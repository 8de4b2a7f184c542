"""The command line: soaks, prints what became of it, and exits with 1 if something is wrong."""

import signal
import sys

from chaos.soak import report
from chaos.soak.options import parse
from chaos.soak.run import run
from chaos.soak.verdict import judge_all


def main() -> int:
    """Do all that, and return the exit status."""
    options = parse(sys.argv[1:])
    # An exit rather than sudden death, so that the server and processes of the run end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcome = run(options)
    verdicts = judge_all(outcome.series, options.warm_up_s)
    show = report.to_json if options.is_json else report.to_text
    sys.stdout.write(show(options, outcome, verdicts) + "\n")
    return 0 if report.is_good(outcome, verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
