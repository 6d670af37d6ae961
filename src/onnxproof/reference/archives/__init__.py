"""Archives that come from elsewhere: what is known to be plain data is kept, and everything else is refused.

PyTorch's own readers unpickle, import, evaluate expressions and load libraries. So an archive is read here first: each
member and each field must be known, and torch is handed a new archive that holds nothing else.
"""

from onnxproof.reference.archives.pt2 import plain_program
from onnxproof.reference.archives.torchscript import check_operators, no_code, plain_script

__all__ = ["check_operators", "no_code", "plain_program", "plain_script"]
