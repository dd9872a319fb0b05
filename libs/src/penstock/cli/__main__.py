"""`python -m penstock.cli` is `penstock`."""

import sys

from penstock.cli import main

sys.exit(main())
