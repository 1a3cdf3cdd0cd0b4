"""``python -m harness_heads`` is ``lmms_eval``."""

import sys

from harness_heads.cli.launch import main

if __name__ == "__main__":
    sys.exit(main())
