"""The files of a folder, each with what was proven of it alone."""

from dataclasses import dataclass

from onnxproof.results.verdicts import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a folder (one branch of a merged one), proven against the part of the reference that it is meant to be."""

    file: str
    role: str
    """encoder, first (a decoder's call without a cache) or step (a call with one)."""
    verdict: Verdict
    sentence: str
    cases: int
    judged: bool = True
    """False where the file keeps its cache in a layout of its own: only the whole loop says whether it is right."""
