"""Launch `rca` from a checkout: `python cli.py analyze logs/`."""

from rca.cli import main

raise SystemExit(main())
