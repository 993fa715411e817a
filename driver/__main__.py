"""`python -m driver` is `tessera`."""

import sys

from driver.cli import main

sys.exit(main())
