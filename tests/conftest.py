"""What all tests share."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The models are so small that threads only wait for each other: one is several times faster on a busy machine."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
