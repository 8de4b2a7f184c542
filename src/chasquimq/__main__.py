"""`python -m chasquimq`: the same as `chasqui`."""

import sys

from chasquimq.cli import main

if __name__ == "__main__":
    sys.exit(main())
