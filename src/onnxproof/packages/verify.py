"""A folder proven: each file against its part of the model, then the whole in its own loop.

1. Compare the tokenizers.
2. Prove each file alone, with the reference's own caches and hidden states as inputs.
3. Roll reference, truth and folder out side by side.
4. Where a file is wrong alone and the loop is right, ask whether it only keeps its cache in another layout.
   Explain what is wrong: the node and the cause.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import VerifyOptions
from onnxproof.packages import open_package, takes_cache, tokenizers
from onnxproof.packages.caches import cache_tensors
from onnxproof.packages.combining import ProvenComponent, combine
from onnxproof.packages.component_module import DecoderModule, EncoderModule
from onnxproof.packages.examples import Example, cache_shapes, decoder_example, encoder_example
from onnxproof.packages.half_outputs import judged_as_numbers
from onnxproof.packages.loaded_model import load_model
from onnxproof.packages.package import Component, Package, Role
from onnxproof.packages.rollouts import FolderRoller, Rolled, taking_part
from onnxproof.packages.schedules import Feeder, plan_folder
from onnxproof.packages.sides import CacheShapes, FolderSide, HuggingFaceSide, open_sides
from onnxproof.reference import subject as subjects
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding, Signature, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.deadline import Deadline
from onnxproof.system.temporary import Folder
from onnxproof.verification.rollout import schedules
from onnxproof.verification.rollout.schedules import Schedule
from onnxproof.verification.rollout.size_constants import declared_context

_ROLLOUT_SHARE = 0.3
"""Of the budget, for the rollouts; the files share the rest (not measured)."""
_EXPLAIN_SHARE = 0.3
"""Of the budget, for the node and the cause of a wrong file (not measured)."""
_NEAR = 1e-2
"""Of a cache's size: further apart than this, two caches hold other things (another rotation is off by 1 in the tests)."""
VerifyFile = Callable[[Subject, Path, VerifyOptions], Proof]


def verify_folder(
    model: Any, folder: Path, options: VerifyOptions, verify_file: VerifyFile
) -> Proof:
    """Prove a folder of files against a Hugging Face model: its folder, or the model in memory."""
    with Folder() as scratch:
        package = open_package(folder, scratch)
        loaded = load_model(model, folder)
        verification = Verification(
            model=loaded.model,
            name=loaded.name,
            origin=loaded.origin,
            package=package,
            options=options,
            verify_file=verify_file,
            saved=loaded.folder,
        )
        return verification.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One folder to be proven."""

    model: Any
    """The Hugging Face model, in memory."""
    name: str
    origin: str
    """The words that load it again; empty for a model in memory."""
    package: Package
    options: VerifyOptions
    verify_file: VerifyFile
    """Proves one file against one module."""

    saved: Path | None = None
    """Where the model was saved, with its tokenizer."""

    def run(self) -> Proof:
        """Prove every file, then the whole, and explain what is wrong with the time that is left."""
        checked = self._tokenizer()
        findings = checked.findings
        deadline = Deadline.after(self.options.budget_s)
        proven = [self._prove(part) for part in self.package.components if self._wants(part)]
        rolled: list[Rolled] = []
        shapes = cache_shapes(self.model) if self._is_loop() else {}
        if shapes:
            for backend in self.options.backends:
                more, layout = self._roll(shapes, backend, proven)
                rolled += more
                proven = _judged_by_loop(proven, layout)
                findings = (*findings, *layout)
        proven = judged_as_numbers(proven, rolled, self.options.policy)
        if not proven:
            proven = [self._unproven(self.package.components[-1])]
        if self.options.explain:
            proven = self._explained(proven, rolled, deadline)
        return combine(
            self.package,
            self.name,
            self.origin,
            proven,
            rolled,
            self.options,
            findings=findings,
            tokenizer=checked.guilty,
        )

    # Step 1

    def _tokenizer(self) -> tokenizers.TokenizerCheck:
        if self.saved is None or self.options.only:
            return tokenizers.TokenizerCheck()
        return tokenizers.compare(self.saved, self.package.folder)

    def _wants(self, part: Component) -> bool:
        """Whether a case of this file is asked for; all are where none is named."""
        only = self.options.only
        return not only or any(name.startswith(f"{part.title}/") for name in only)

    def _is_loop(self) -> bool:
        """Whether the files can be called again and again by themselves."""
        step = self.package.component(Role.STEP)
        if step is None or not takes_cache(step.path):
            return False
        return self.package.two_parts or not self.model.config.is_encoder_decoder

    # Step 2

    def _prove(
        self, part: Component, *, budget_s: float | None = None, past: int | None = None
    ) -> ProvenComponent:
        """The file against its part of the model; what can't be run is an error of this part."""
        file = onnx_file.read(part.path)
        subject = component_subject(self.model, part, file, padding=self.package.padding, past=past)
        options = replace(self.options, only=self._cases(part), profile=False, loop=None)
        options = replace(options, budget_s=budget_s or self._share(), explain=budget_s is not None)
        try:
            proof = self.verify_file(subject, part.path, options)
        except OnnxproofError as why:
            return replace(self._unproven(part), proof=self._failed(part, why.render()))
        return ProvenComponent(component=part, proof=replace(proof, candidate=part.title))

    def _share(self) -> float:
        """Seconds for one file; what explains a fault is kept back."""
        kept = _ROLLOUT_SHARE
        if self.options.explain:
            kept += _EXPLAIN_SHARE
        return self.options.budget_s * (1 - kept) / len(self.package.components)

    def _cases(self, part: Component) -> tuple[str, ...]:
        start = f"{part.title}/"
        return tuple(
            name.removeprefix(start) for name in self.options.only if name.startswith(start)
        )

    def _unproven(self, part: Component) -> ProvenComponent:
        """A file of which nothing was asked."""
        return ProvenComponent(component=part, proof=self._failed(part, ""))

    def _failed(self, part: Component, error: str) -> Proof:
        return Proof(
            verdict=Verdict.ERROR if error else Verdict.VACUOUS,
            subject=self.name,
            candidate=part.title,
            backends=self.options.backends,
            gaps=(),
            signature=Signature(inputs=(), outputs=(), dims=()),
            policy=self.options.policy,
            error=error,
            seed=self.options.seed,
        )

    # Step 3

    def _roll(
        self, shapes: CacheShapes, backend: str, proven: Sequence[ProvenComponent]
    ) -> tuple[list[Rolled], tuple[Finding, ...]]:
        """The rollouts that the time allows, and what is known of the cache's layout."""
        deadline = Deadline.after(self.options.budget_s * _ROLLOUT_SHARE)
        options = self.options
        rolled: list[Rolled] = []
        with open_sides(self.package, self.model, shapes, backend) as sides:
            everyone = taking_part(self.package, self.model, sides, backend, options.policy)
            roller = FolderRoller(self.model, everyone, options.policy, options.seed)
            for schedule in self._schedules():
                if rolled and deadline.passed:
                    break
                rolled.append(roller.roll(schedule, deadline))
            right = all(one.rollout.first_bad_step is None for one in rolled)
            suspected = [one for one in proven if one.bad or one.proof.error]
            if not right or not suspected or not rolled:
                return rolled, ()
            differ = self._differing_caches(sides[0], sides[2])
        return rolled, _layout_findings(differ)

    def _schedules(self) -> list[Schedule]:
        if self.options.only:
            named = [name for name in self.options.only if name.startswith(schedules.PREFIX)]
            return [schedules.parse(name) for name in named]
        return list(
            plan_folder(
                self.model.config,
                padding=self.package.padding,
                masked_source=self.package.two_parts and self.model.main_input_name == "input_ids",
                free_length=self._takes_any_length(),
                buffer=self.package.buffer,
                steps=self.options.steps,
            )
        )

    def _takes_any_length(self) -> bool:
        """Whether a call with a cache takes several tokens; Optimum fixes one for an encoder's decoder."""
        step = self.package.component(Role.STEP)
        assert step is not None
        for port in onnx_file.read(step.path).inputs:
            if port.name == "input_ids" and port.dims is not None:
                return not isinstance(port.dims[-1], int)
        return True

    # Step 4

    def _explained(
        self, proven: Sequence[ProvenComponent], rolled: Sequence[Rolled], deadline: Deadline
    ) -> list[ProvenComponent]:
        """The first wrong file once more, with its node and cause; where only the loop is wrong, its call with the true cache."""
        budget_s = max(deadline.left, _EXPLAIN_SHARE * self.options.budget_s)
        wrong, past = _guilty(proven, rolled)
        if wrong is None:
            return list(proven)
        again = self._prove(wrong.component, budget_s=budget_s, past=past)
        if not again.bad:
            return list(proven)
        return [again if one is wrong else one for one in proven]

    def _differing_caches(self, reference: HuggingFaceSide, candidate: FolderSide) -> list[str]:
        """The caches that hold something else after one prompt, in words."""
        schedule = Schedule(batch=1, lengths=(5,))
        feeds = Feeder(self.model, schedule, self.options.seed).feeds(0, 5, 0, None)
        for side in (reference, candidate):
            side.reset(1)
            side.step(feeds)
        own = {place: np.asarray(t) for place, t in cache_tensors(reference.cache).items()}
        return [
            f"layer {place.layer} {'values' if place.values else 'keys'}"
            for place, array in candidate.cache.items()
            if not _holds_the_same(own[place], array, self.package.buffer)
        ]


def _guilty(
    proven: Sequence[ProvenComponent], rolled: Sequence[Rolled]
) -> tuple[ProvenComponent | None, int | None]:
    """The first file that is wrong by itself; else that of the first wrong call, and how much came before the call."""
    wrong = next((one for one in proven if one.bad), None)
    late = next((one for one in rolled if one.rollout.first_bad_step), None)
    if wrong is not None or late is None:
        return wrong, None
    past = (late.rollout.first_bad_length or 1) - 1
    return next((one for one in proven if one.component.file == late.file), None), past


def component_subject(
    model: Any, part: Component, file: OnnxFile, *, padding: bool, past: int | None = None
) -> Subject:
    """The module that a file is meant to be, with an example (after `past` tokens) and the dims that may vary."""
    outputs = [port.name for port in file.outputs]
    module: Any
    example: Example
    if part.role is Role.ENCODER:
        module, example = EncoderModule(model, outputs), encoder_example(model, file.inputs)
    else:
        module = DecoderModule(model, part.role, outputs, padding=padding)
        sizes = {} if past is None else {"past": past}
        example = decoder_example(model, file.inputs, padding=padding, **sizes)
    subject = Subject(
        module=module.eval(),
        example_inputs=example.inputs,
        dynamic_shapes=example.dims,
        dims=_served_sizes(model, example),
        name=part.title,
    )
    return subjects.load(subject)


def _served_sizes(model: Any, example: Example) -> dict[str, str]:
    """What comes before a call and the call itself are together no longer than the model was made for."""
    context = declared_context(model.config)
    names = set(_names_in(example.dims))
    if context is None:
        return {}
    longest = context // 2 if "past" in names else context
    limits = {"sequence": f"1..{longest}", "past": f"0..{context - longest}"}
    return {name: limit for name, limit in limits.items() if name in names}


def _names_in(dims: Any) -> Iterator[str]:
    """The names of dims, however deep a cache nests them."""
    if isinstance(dims, str):
        yield dims
    elif isinstance(dims, Mapping):
        yield from _names_in(list(dims.values()))
    elif isinstance(dims, list | tuple):
        for inner in dims:
            yield from _names_in(inner)


def _holds_the_same(own: np.ndarray, other: np.ndarray, buffer: int) -> bool:
    if buffer:
        other = other[:, :, : own.shape[2]]
    if own.shape != other.shape:
        return False
    apart = np.abs(own.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)
    return bool(apart <= _NEAR * np.abs(own).max(initial=0.0))


def _layout_findings(differ: Sequence[str]) -> tuple[Finding, ...]:
    if not differ:
        return ()
    finding = Finding(
        code="state-layout",
        what=f"the files keep their cache in a layout of their own ({', '.join(differ[:3])}{', ...' * (len(differ) > 3)})",
        help="the whole loop is right at every step; a cache can't be handed from one side to the other",
    )
    return (finding,)


def _judged_by_loop(
    proven: Sequence[ProvenComponent], layout: Sequence[Finding]
) -> list[ProvenComponent]:
    """With another layout, the decoders are not judged by calls from the reference's cache."""
    if not layout:
        return list(proven)
    return [replace(one, judged=one.component.role is Role.ENCODER) for one in proven]
