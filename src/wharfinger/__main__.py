"""`python -m wharfinger` is the `wharfinger` command; nothing else is known here."""

import sys

from wharfinger.cli import main

if __name__ == "__main__":
    sys.exit(main())
