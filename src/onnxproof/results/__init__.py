"""What a verification found: frozen, with no behaviour but reading; nothing here is heavy to import."""

from onnxproof.results.causes import CalibrationRange, Cause, Fix, Share
from onnxproof.results.exports import Attempt, ExportedDim, ExportRecord, Guard
from onnxproof.results.gaps import Coverage, CrossCheck, Dropped, Finding, Gap, Note, Standing
from onnxproof.results.location import Location, NodeGap, Profile, Source, Suspect
from onnxproof.results.parts import Part
from onnxproof.results.rollouts import Rollout, RolloutStep
from onnxproof.results.signature import Case, DimInfo, InputInfo, OutputInfo, Signature
from onnxproof.results.verdicts import Domain, NoiseKind, Stage, Status, Verdict, Void

__all__ = [
    "Attempt",
    "CalibrationRange",
    "Case",
    "Cause",
    "Coverage",
    "CrossCheck",
    "DimInfo",
    "Domain",
    "Dropped",
    "ExportRecord",
    "ExportedDim",
    "Finding",
    "Fix",
    "Gap",
    "Guard",
    "InputInfo",
    "Location",
    "NodeGap",
    "NoiseKind",
    "Note",
    "OutputInfo",
    "Part",
    "Profile",
    "Rollout",
    "RolloutStep",
    "Share",
    "Signature",
    "Source",
    "Stage",
    "Standing",
    "Status",
    "Suspect",
    "Verdict",
    "Void",
]
