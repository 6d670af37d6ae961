"""From a seed and an index to a folder with damaged files and the words of one call."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from bench.fuzz import datafiles, proofs, words
from bench.fuzz.damage import KINDS, NotApplicable, Target
from bench.fuzz.models import Base

SOUND = "none"
"""The kind that damages nothing: a sound file must not be refused."""
ALL_KINDS = (*KINDS, *proofs.KINDS, *proofs.BASELINES, *datafiles.KINDS, *words.KINDS, SOUND)
_BUDGET = "0.3"
_TIME_LIMIT = "10"
_EXPLAINED, _SEVERAL, _READ_AGAIN = 0.15, 0.15, 0.25
"""Shares of the calls in which the fault is explained, of the files with two or three kinds of damage, and of the proofs that are read again."""
_WRITERS = (
    ("--html", "out.html"),
    ("--markdown", "out.md"),
    ("--junit", "out.xml"),
    ("--sarif", "out.sarif"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: its words are relative to its folder."""

    seed: int
    index: int
    kind: str
    base: str
    words: list[str]
    compares: bool = False
    """True where FAITHFUL would say that the damaged file answers as the original does."""
    then: list[str] = field(default_factory=list)
    """A second call, which reads the proof that the first one wrote."""

    def save(self, folder: Path) -> None:
        """Write it for a replay."""
        (folder / "call.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, folder: Path) -> "Call":
        """What `save` wrote."""
        return cls(**json.loads((folder / "call.json").read_text()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What the calls of one run share."""

    seed: int
    bases: Sequence[Base]
    proof: str
    """A stored proof, as text."""
    baseline: str = ""
    """A lock file, as text."""
    kinds: Sequence[str] = ALL_KINDS

    def make(self, index: int, folder: Path) -> Call:
        """Write the files of one call; the same seed and index give the same."""
        turn, place = divmod(index, len(self.kinds))
        order = list(self.kinds)
        random.Random(f"{self.seed}/{turn}").shuffle(order)
        kind, source = order[place], random.Random(f"{self.seed}/{index}")
        if kind in proofs.KINDS:
            (folder / "proof.json").write_bytes(proofs.damaged(self.proof, kind, source))
            return Call(seed=self.seed, index=index, kind=kind, base="", words=_reading(source))
        if kind in proofs.BASELINES:
            (folder / "proof.json").write_text(self.proof)
            (folder / "lock.json").write_bytes(
                proofs.damaged(self.baseline, f"proof-{kind.removeprefix(proofs.BASELINE)}", source)
            )
            return Call(
                seed=self.seed,
                index=index,
                kind=kind,
                base="",
                words=["verify", "--from", "proof.json", "--baseline", "lock.json"],
            )
        if kind in datafiles.KINDS or kind in words.KINDS:
            return self._sound_files(index, kind, folder, source)
        base = self._damaged(kind, folder, source)
        write(base, folder, "good")
        said, compares = _comparing(base, source)
        then = (
            _reading(source, "out.json")
            if "out.json" in said and said[0] != "inspect" and source.random() < _READ_AGAIN
            else []
        )
        return Call(
            seed=self.seed,
            index=index,
            kind=kind,
            base=base.name,
            words=said,
            compares=compares,
            then=then,
        )

    def _sound_files(self, index: int, kind: str, folder: Path, source: random.Random) -> Call:
        base = source.choice([base for base in self.bases if base.subject])
        write(base, folder, "good")
        (folder / "proof.json").write_text(self.proof)
        if kind in words.KINDS:
            said = words.line(kind, base.subject, source)
        else:
            data = datafiles.write(base.example, kind, folder, source)
            said = [
                "verify",
                source.choice([base.subject, "good.onnx"]),
                "good.onnx",
                "--data",
                data,
                "--budget",
                _BUDGET,
                "--no-explain",
            ]
        return Call(seed=self.seed, index=index, kind=kind, base=base.name, words=said)

    def _damaged(self, kind: str, folder: Path, source: random.Random) -> Base:
        """Write `bad.onnx`; the base model that it was made from."""
        order = list(self.bases)
        source.shuffle(order)
        for base in order:
            if kind == SOUND and base.odd_ports:
                continue
            target = Target(model=_copied(base, folder, "bad"), folder=folder, random=source)
            try:
                if kind != SOUND:
                    KINDS[kind].apply(target)
            except NotApplicable:
                continue
            if kind != SOUND and source.random() < _SEVERAL:
                _more(target)
            content = target.model.SerializeToString()
            for change in target.bytes_change:
                content = change(content) if content else content
            (folder / "bad.onnx").write_bytes(content)
            return base
        raise NotApplicable(f"no base model can be damaged by {kind}")


def _more(target: Target) -> None:
    for kind in target.random.sample(sorted(KINDS), target.random.choice([1, 2])):
        try:
            KINDS[kind].apply(target)
        except Exception:  # the model may be in no state for this one any more
            continue


def write(base: Base, folder: Path, stem: str) -> None:
    """The sound model as `<stem>.onnx`, with its weights beside it where they belong there."""
    (folder / f"{stem}.onnx").write_bytes(_copied(base, folder, stem).SerializeToString())


def _copied(base: Base, folder: Path, stem: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(base.model)
    if base.external:
        _outside(model, folder / f"{stem}.data")
    return model


def _outside(model: onnx.ModelProto, path: Path) -> None:
    content = b""
    for weight in model.graph.initializer:
        for key, value in (
            ("location", path.name),
            ("offset", str(len(content))),
            ("length", str(len(weight.raw_data))),
        ):
            entry = weight.external_data.add()
            entry.key, entry.value = key, value
        content += weight.raw_data
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
    path.write_bytes(content)


def _reading(source: random.Random, proof: str = "proof.json") -> list[str]:
    """A command that reads a proof."""
    return source.choice(
        [
            ["verify", "--from", proof],
            ["verify", "--from", proof, "--strict", "-v", "--json", "again.json"],
            ["report", proof, "-o", "again.html"],
            ["report", proof, "-o", "again.md"],
            ["report", proof, "-o", "again.xml"],
            ["report", proof, "-o", "again.sarif"],
            ["explain", proof],
            ["verify", "--from", proof, "--html", "again.html"],
        ]
    )


def _comparing(base: Base, source: random.Random) -> tuple[list[str], bool]:
    """A command that reads the damaged file, and whether it compares it with the original."""
    pairs = [
        ("diff", "good.onnx", "bad.onnx"),
        ("diff", "bad.onnx", "good.onnx"),
        ("verify", "good.onnx", "bad.onnx"),
        ("diff", "bad.onnx", "bad.onnx"),
    ]
    pairs += [("verify", base.subject, "bad.onnx")] * 3 if base.subject else []
    if source.random() < 0.3:
        reference = ["--reference", base.subject] if base.subject and source.random() < 0.3 else []
        return [
            "inspect",
            "bad.onnx",
            *reference,
            *source.choice([[], ["--json", "out.json"], ["--strict"], ["-q"]]),
        ], False
    command, first, second = source.choice(pairs)
    said: list[Any] = [
        command,
        first,
        second,
        "--budget",
        _BUDGET,
        "--time-limit",
        _TIME_LIMIT,
        "--json",
        "out.json",
    ]
    said += [] if source.random() < _EXPLAINED else ["--no-explain"]
    said += source.choice(
        [
            [],
            [],
            ["-q"],
            ["-v"],
            ["--strict"],
            ["--strict-domains"],
            ["--domain", "finite"],
            ["--github"],
        ]
    )
    said += source.choice(_WRITERS) if source.random() < 0.15 else ()
    said += (
        ["--backend", source.choice(["ort:disabled", "reference", "ort:basic"])]
        if source.random() < 0.1
        else []
    )
    return said, first != second
