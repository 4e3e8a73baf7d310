"""`python -m rca` is the command line."""

import sys

from rca.cli import main

sys.exit(main())
