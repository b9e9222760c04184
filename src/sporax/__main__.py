"""`python -m sporax` is the `sporax` command."""

import sys

from sporax.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
