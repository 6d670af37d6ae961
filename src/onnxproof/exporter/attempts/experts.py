"""Mixture of experts: all experts at once by batched matrix products, instead of a Python loop over the selected ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job, capture_and_translate

ABOUT = "experts computed by batched matrix products"
KINDS = ("data-dependent", "operator", "other")
_SETTING = "_experts_implementation"


def applies(job: Job) -> bool:
    """True for models of the library transformers that can choose how experts are computed."""
    return any(True for _ in _configs(job.subject.module))


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """The standard route while the configuration asks for `batched_mm` experts."""
    with _experts_setting(list(_configs(job.subject.module)), "batched_mm"):
        return capture_and_translate(job)


def _configs(module: Any) -> Iterator[Any]:
    seen: set[int] = set()
    if not hasattr(module, "modules"):
        return
    for layer in module.modules():
        config = getattr(layer, "config", None)
        if config is not None and hasattr(config, _SETTING) and id(config) not in seen:
            seen.add(id(config))
            yield config


@contextmanager
def _experts_setting(configs: list[Any], value: str) -> Iterator[None]:
    before = [getattr(config, _SETTING) for config in configs]
    for config in configs:
        setattr(config, _SETTING, value)
    try:
        yield
    finally:
        for config, old_value in zip(configs, before, strict=True):
            setattr(config, _SETTING, old_value)
