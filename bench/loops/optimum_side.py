"""Run by a Python that has optimum-onnx: does Optimum generate from a folder what the model generates? And its own export of it.

python optimum_side.py SAVED FOLDER THEIRS
"""

import json
import sys
from pathlib import Path
from typing import Any

_NEW = 12


def main(saved: str, folder: str, theirs: str) -> None:
    """Print one line of JSON."""
    import torch
    import transformers
    from optimum import onnxruntime

    config = transformers.AutoConfig.from_pretrained(saved)
    model = getattr(transformers, config.architectures[0]).from_pretrained(saved).eval()
    kinds = {
        "whisper": "ORTModelForSpeechSeq2Seq",
        "t5": "ORTModelForSeq2SeqLM",
        "bart": "ORTModelForSeq2SeqLM",
    }
    kind = getattr(onnxruntime, kinds.get(config.model_type, "ORTModelForCausalLM"))
    torch.manual_seed(0)
    inputs: dict[str, Any] = {"input_ids": torch.randint(3, 96, (2, 7))}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if config.model_type == "whisper":
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, 40)}
    options = {"max_new_tokens": _NEW, "min_new_tokens": _NEW, "do_sample": False}
    row: dict[str, Any] = {}
    with torch.no_grad():
        wanted = model.generate(**inputs, **options)
        try:
            given = kind.from_pretrained(folder).generate(**inputs, **options)
            row["same"] = bool(torch.equal(wanted, given))
            row["tokens"] = int(given.shape[-1])
        except Exception as why:  # whatever the loader says
            row["refused"] = f"{type(why).__name__}: {why}"[:300]
        try:
            exported = kind.from_pretrained(saved, export=True)
            exported.save_pretrained(theirs)
            row["exported"] = "yes" if any(Path(theirs).glob("*.onnx")) else "nothing"
        except Exception as why:  # whatever the exporter says
            row["exported"] = f"{type(why).__name__}: {why}"[:300]
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:4])
