"""``python -m mlinspect.cli``."""

import sys

from mlinspect.cli import main

if __name__ == "__main__":
    sys.exit(main())
