"""`python -m benchmarks.store`: makes the latest run the stored one.

Copies the figures and plots of the latest run. Then writes TABLES.md into their folder and the
headline figures into README.md.
"""

import shutil
import sys

from benchmarks import table
from benchmarks.figures import LATEST, STORED, BadResults, Results


def main() -> int:
    """Runs the command and returns its exit code: 2 if the latest results cannot be read."""
    try:
        Results.read(LATEST)
    except BadResults as error:
        print(error, file=sys.stderr)
        return 2
    shutil.rmtree(STORED.parent, ignore_errors=True)
    shutil.copytree(LATEST.parent, STORED.parent)
    return table.main(["--write"])


if __name__ == "__main__":
    sys.exit(main())
