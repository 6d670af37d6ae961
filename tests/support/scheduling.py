"""How pytest-xdist shares the tests among its workers: dear files first, and one planted fault on one worker.

A file stays on one worker, since its fixtures are made once a file. The tests of a planted fault stay together though
they stand in several files: the fault is verified once a process, and would be verified again on another worker.
"""

import re
from typing import Any

from xdist.scheduler import LoadScopeScheduling

FAULT_FILES = (
    "tests/end_to_end/test_causes.py",
    "tests/diagnosis/test_locate.py",
    "tests/diagnosis/test_repro.py",
)
"""The files that call `planted_faults.examine` with the name of a fault as the test's parameter."""

DEAREST = (
    "tests/end_to_end/test_bare_environment.py",
    "tests/end_to_end/test_docs.py",
    "tests/preprocessing/test_preprocessing.py",
    "tests/end_to_end/test_layouts.py",
    "tests/end_to_end/test_pytest_plugin.py",
    "tests/quantization/test_quantized_others.py",
    "tests/verification/test_masked.py",
    "tests/exporter/test_export_ways.py",
    "tests/exporter/test_export_dims.py",
    "tests/end_to_end/test_kills.py",
    "tests/quantization/test_images.py",
    "tests/end_to_end/test_early_proof.py",
    "tests/end_to_end/test_optimised_quantized.py",
    "tests/exporter/test_export_choices.py",
    "tests/end_to_end/test_mutants.py",
    "tests/end_to_end/test_fuzz.py",
    "tests/exporter/test_export_sizes.py",
    "tests/end_to_end/test_pitfalls.py",
    "tests/end_to_end/test_quantized_parameters.py",
    "tests/end_to_end/test_browser.py",
    "tests/end_to_end/test_fresh_mutants.py",
    "tests/end_to_end/test_hostile_subjects.py",
    "tests/end_to_end/test_verify.py",
)
"""By the seconds of their dearest tests in a run with `--durations=150`. They begin, so that what is left at the end is
small and the workers end together; only the order depends on it."""


def scope(nodeid: str) -> str:
    """What is run on one worker: a fault's tests, or a file."""
    file, _, rest = nodeid.partition("::")
    if file in FAULT_FILES:
        parameter = re.search(r"\[(.+)\]$", rest)
        return f"fault {parameter[1]}" if parameter else file
    return file


def rank(nodeid: str) -> int:
    """The place of a test's file in the order of the run: the dear ones, the planted faults, all others."""
    file = nodeid.partition("::")[0]
    if file in DEAREST:
        return DEAREST.index(file)
    return len(DEAREST) + (file not in FAULT_FILES)


class Scheduling(LoadScopeScheduling):
    """Hands out scopes in the order of the collection."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
