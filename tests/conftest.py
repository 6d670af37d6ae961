"""What all tests share."""

import os
import signal
import sys
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start
# Several hundred processes are started, and each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A run in the background (`nohup`, `&`) inherits ignored signals, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The models are so small that threads only wait for each other: one is several times faster on a busy machine."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def one_table_of_translations() -> None:
    """Several hundred tests export a small model: most of the price is torch's table."""
    from support import translations

    translations.share()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Dear files first: what is left at the end is small, and the workers end together."""
    from support import scheduling

    items.sort(key=lambda item: scheduling.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but for planted faults, whose tests stand in several files."""
    from support import scheduling

    return scheduling.Scheduling(config, log) if config.option.dist == "loadfile" else None
