"""Reports of causes whose errors were measured, measured in part, or not at all."""

from dataclasses import replace

import pytest
from support.made_proofs import full

from onnxproof.report import page_data
from onnxproof.report.plain import noise_change
from onnxproof.report.writers import html, json, markdown
from onnxproof.results import Cause


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (250.0, 1.5, " (250 times the noise before, 1.5 after)"),
        (250.0, None, " (250 times the noise)"),
        (None, None, ""),
    ],
)
def test_only_what_was_measured_is_written(
    before: float | None, after: float | None, words: str
) -> None:
    cause = Cause(
        code="kernel", title="t", proven=True, evidence="seen", before=before, after=after
    )
    assert noise_change(cause) == words
    proof = replace(full(), causes=(cause,))
    assert f"seen{words}" in markdown.dumps(proof)
    assert len(list(page_data._causes(proof))) == (0 if after is None else 2)
    assert json.from_dict(json.to_dict(proof)).causes == (cause,)
    page = html.dumps(proof)
    assert (" times the noise before, 1.5 after)" in page) is (after is not None)
