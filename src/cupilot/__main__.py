"""``python -m cupilot``: the same as the command ``cupilot``."""

import sys

from cupilot.cli import main

sys.exit(main())
