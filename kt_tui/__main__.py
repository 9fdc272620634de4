"""``python -m kt_tui`` is the same as the ``kt-tui`` command."""

import sys

from kt_tui.cli.main import main

sys.exit(main())
