"""`python -m onnxproof`."""

import sys

from onnxproof.cli import main

sys.exit(main())
