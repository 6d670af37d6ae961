"""Log-mel features: the logarithm turns the rounding of quiet bands into large absolute differences."""

from pathlib import Path

from bench.architectures import LogMel
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="audio", about="STFT by convolution, mel filters, log with a floor")


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "samples"},)
    return healthy(
        folder / "audio_log_mel.onnx",
        LogMel().eval(),
        (normal(2, 400, scale=0.1),),
        axes,
        dynamo=False,
    )
