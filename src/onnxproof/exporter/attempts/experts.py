"""Mixture of experts: all experts at once by batched matrix products, instead of a Python loop over those that were chosen."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made, standard

ABOUT = "experts computed by batched matrix products"
KINDS = ("data-dependent", "operator", "other")
_SETTING = "_experts_implementation"


def applies(job: Job) -> bool:
    """True for models of the library transformers that can choose how experts are computed."""
    return any(True for _ in _configs(job.found.module))


def run(job: Job, failure: Failure) -> Made:
    """The standard way while the configuration asks for `batched_mm` experts."""
    with _set(list(_configs(job.found.module)), "batched_mm"):
        return standard(job)


def _configs(module: Any) -> Iterator[Any]:
    seen: set[int] = set()
    for layer in module.modules() if hasattr(module, "modules") else ():
        config = getattr(layer, "config", None)
        if config is not None and hasattr(config, _SETTING) and id(config) not in seen:
            seen.add(id(config))
            yield config


@contextmanager
def _set(configs: list[Any], wanted: str) -> Iterator[None]:
    before = [getattr(config, _SETTING) for config in configs]
    for config in configs:
        setattr(config, _SETTING, wanted)
    try:
        yield
    finally:
        for config, value in zip(configs, before, strict=True):
            setattr(config, _SETTING, value)
