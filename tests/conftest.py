"""What all tests share."""

import os
import signal

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start
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


_GROUPS = {
    "planted faults": ("test_locate", "test_causes", "test_explain", "test_repro"),
    "quantized faults": ("test_quantized_causes", "test_quantized_others"),
    "exported zoo": ("test_verify",),
    "planted runtimes": ("test_planted_backends",),
    "hostile names": ("test_hostile_names",),
    "hostile subjects": ("test_hostile_subjects",),
    "masked models": ("test_masked",),
    "experts": ("test_tied_experts",),
    "contained runtimes": ("test_contained",),
}
"""Files that share what is dear to make (explained faults, exports, environments): one worker makes it once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a group on one worker."""
    groups = {name: group for group, names in _GROUPS.items() for name in names}
    for item in items:
        group = groups.get(item.path.stem)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
