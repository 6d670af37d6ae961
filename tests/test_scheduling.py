"""Which tests go to the same worker, and in which order."""

from pathlib import Path

from support import scheduling

ROOT = Path(__file__).parent.parent


def test_the_tests_of_a_planted_fault_stay_together_over_files() -> None:
    cause = scheduling.scope("tests/end_to_end/test_causes.py::test_the_cause[conv-leaky-slope]")
    place = scheduling.scope("tests/diagnosis/test_locate.py::test_the_node[conv-leaky-slope]")
    other = scheduling.scope("tests/diagnosis/test_locate.py::test_the_node[mlp-bias-dropped]")
    assert cause == place != other


def test_another_file_stays_on_one_worker() -> None:
    first = scheduling.scope("tests/end_to_end/test_docs.py::test_a_page[docs/a.md]")
    assert first == scheduling.scope("tests/end_to_end/test_docs.py::test_the_readme")
    assert scheduling.rank("tests/end_to_end/test_docs.py::test_the_readme") < scheduling.rank(
        "tests/numerics/test_compare.py::test_equal"
    )


def test_the_files_that_are_named_are_there() -> None:
    named = {*scheduling.DEAREST, *scheduling.FAULT_FILES}
    assert [name for name in named if not (ROOT / name).is_file()] == []
