"""The zoo: every architecture exported with its dims open, verified, and written down with the cause where it is not faithful.

python -m bench.zoo                        # all of them, to docs/zoo.md
python -m bench.zoo --only llama,mixtral   # some of them, to the screen
"""

from bench.zoo import language, other  # noqa: F401 - importing registers the entries
from bench.zoo._entry import ENTRIES

__all__ = ["ENTRIES"]
