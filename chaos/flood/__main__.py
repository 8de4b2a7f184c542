"""The command line: plays a flood, prints how it went, and exits with 1 if a job never ran."""

import argparse
import signal
import sys

from chaos.flood import report
from chaos.flood.run import Options, run
from chaos.options import SERVERS


def parse(arguments: list[str]) -> Options:
    """The options of a command line; says what is wrong with it, and exits, if it is."""
    usual = Options()
    parser = argparse.ArgumentParser(
        prog="python -m chaos.flood",
        description="Have many delayed jobs due in one second, and see new ones get through.",
    )
    add = parser.add_argument
    add("--jobs", type=int, default=usual.jobs)
    add("--workers", type=int, default=usual.workers, help="worker processes")
    add("--concurrency", type=int, default=usual.concurrency, help="handlers of each at a time")
    add("--takes-ms", type=float, default=usual.takes_ms, help="how long a handler awaits")
    add("--new-rate", type=float, default=usual.new_rate, help="new jobs a second, meanwhile")
    add("--server", choices=SERVERS, default=usual.server)
    add("--json", action="store_true", dest="is_json", help="print everything as JSON")
    return Options(**vars(parser.parse_args(arguments)))


def main() -> int:
    """Do all that, and return the exit status."""
    options = parse(sys.argv[1:])
    # An exit rather than sudden death, so that the server and processes of the run end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcome = run(options)
    show = report.to_json if options.is_json else report.to_text
    sys.stdout.write(show(options, outcome) + "\n")
    return 1 if outcome.unheard else 0


if __name__ == "__main__":
    sys.exit(main())
