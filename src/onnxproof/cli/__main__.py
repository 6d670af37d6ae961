"""`python -m onnxproof.cli`, for a source tree that is not installed."""

import sys

from onnxproof.cli import main

sys.exit(main())
