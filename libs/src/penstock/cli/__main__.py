"""Lets `python -m penstock.cli` run the `penstock` command."""

import sys

from penstock.cli import main

sys.exit(main())
