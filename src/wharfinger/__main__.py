"""`python -m wharfinger` runs the `wharfinger` command."""

import sys

from wharfinger.cli import main

if __name__ == "__main__":
    sys.exit(main())
