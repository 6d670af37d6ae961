"""Large convolutions in float64 give the same by stripes, and do not need the memory of all their windows."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from onnxproof.reference import striped_convolution

KINDS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRUTH = """
import re, sys, numpy as np, torch
from torch import nn
from onnxproof.reference.torch_session import TorchSession
from onnxproof.reference.float64 import TruthSession
torch.manual_seed(0)
model, x = nn.Conv2d(8, 8, 3, padding=1), np.random.default_rng(0).standard_normal((1, 8, 1024, 1024), dtype=np.float32)
small = torch.zeros(1, 8, 16, 16)
truth = TruthSession(model, (small,), {})
truth.run({"input": small.numpy()})
before = int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
truth.run({"input": x})
print((int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) - before) // 1024)
"""


@settings(max_examples=60, deadline=None)
@given(
    rank=st.sampled_from([1, 2, 3]),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    batch=st.integers(1, 2),
    length=st.integers(9, 17),
    room=st.sampled_from([64, 2000, 30000]),
)
def test_stripes_give_what_the_whole_gives(
    rank: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    bias: bool,
    batch: int,
    length: int,
    room: int,
) -> None:
    layer = KINDS[rank](4, 8, kernel, stride, padding, dilation, groups, bias).double()
    x = torch.randn(batch, 4, *(length, 11, 9)[:rank], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patched, torch.no_grad():
        patched.setattr(striped_convolution, "LARGE", 0)
        patched.setattr(striped_convolution, "AT_ONCE", room)
        with striped_convolution.Stripes():
            found = layer(x)
        torch.testing.assert_close(found, layer(x), rtol=1e-12, atol=1e-12)


def test_float32_transposed_and_unbatched_convolutions_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(striped_convolution, "LARGE", 0)
    monkeypatch.setattr(
        striped_convolution, "_convolve_by_stripes", lambda *_: pytest.fail("cut into stripes")
    )
    with torch.no_grad(), striped_convolution.Stripes():
        nn.Conv2d(4, 4, 3)(torch.randn(1, 4, 9, 9))
        nn.ConvTranspose2d(4, 4, 3).double()(torch.randn(1, 4, 9, 9, dtype=torch.float64))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_truth_of_a_large_convolution_does_not_need_all_its_windows() -> None:
    """One value is 64 MB in float64, the windows of a 3 by 3 kernel are 576 MB."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TRUTH],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(ran.stdout) < 350
