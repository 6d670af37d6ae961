"""Which nodes are wrong while their inputs are right: the file's values against what the module computed.

Values inside a decomposition that the module never computed are excused when a right value follows from them. What is
left begins at the origins, and those are tested by counterfactual.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.match import Match, merges_heads, squeezed_shape
from onnxproof.numerics.sketch import Sketch, distance
from onnxproof.onnxmodel.graph import Graph, consumed_names
from onnxproof.reference.traced_value import TracedValue

_FAR = 8
"""Steps from the right values before a node beyond which all traced values are equally unlikely to be its own. Not measured."""
_MOST_WALKED = 64
"""Wrong nodes through which the right values before a node are looked for. Not measured."""
_SHAPE_READERS = frozenset({"Shape", "Size"})
"""They read no value: what follows from them excuses nothing."""
_MOVING = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"})
"""An Identity is not among them: it may stand where an operation was removed."""
_SELECTING = frozenset({"Slice", "Split", "Gather", "GatherND"})
_SATURATING = frozenset(
    {"Softmax", "Sigmoid", "Tanh", "Erf", "Relu", "Clip", "Where", "Min", "Max"}
)
"""They give the same for inputs that differ: a softmax that is 0 or 1 everywhere."""
_MOST_SATURATED = 12
"""Values that are none of the module's before such a node and that its right result excuses: scores with their scale and mask are
fewer, a layer has more. Not measured."""


@dataclass(slots=True)
class Comparison:
    """The outcome of one comparison. The dicts have an item for each suspect; looking upstream adds further nodes."""

    origins: list[int] = field(default_factory=list)
    """Wrong nodes whose inputs are all right."""
    downstream: list[int] = field(default_factory=list)
    """The other wrong nodes."""
    gaps: dict[int, float] = field(default_factory=dict)
    nearest: dict[int, TracedValue] = field(default_factory=dict)
    sketches: dict[int, Sketch] = field(default_factory=dict)
    wrong_values: dict[int, str] = field(default_factory=dict)
    """For each node the name of its value that is wrong."""
    right: dict[str, Sketch] = field(default_factory=dict)
    """Values that were found among the traced ones."""
    places: dict[str, int] = field(default_factory=dict)
    """For each of the file's right values the place of the traced one that it is."""
    stopped: list[int] = field(default_factory=list)
    """Nodes with a right value that is only a step inside an operation of the module, whose result never comes."""
    compared: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def suspects(self) -> list[int]:
        """All wrong nodes, the origins first."""
        return [*self.origins, *self.downstream]

    def note_value(
        self,
        node: int,
        name: str,
        sketch: Sketch,
    ) -> None:
        """Remember which value of a node is looked at."""
        self.sketches[node] = sketch
        self.wrong_values[node] = name


def compare(
    graph: Graph,
    matches: Mapping[str, Match],
    tolerance: float,
    wrong: Collection[str] = (),
    *,
    excuse: bool = True,
    stops: bool = True,
) -> Comparison:
    """Find the nodes with a value that is not right, and among them those whose inputs are; `wrong` are values that only look right.

    1. Right are the values found among the traced ones, and (`excuse`) those that a right value is computed from.
    2. Every node whose value is read is compared.
    3. A node that stops inside an operation of the module is wrong, too (`stops`), although its value is right.
    4. The origins are the wrong nodes whose inputs are right.
    """
    result = Comparison()
    right = _right_values(graph, matches, tolerance, wrong, excuse=excuse)  # step 1
    result.right = {
        name: matches[name].sketch
        for name in right
        if name in matches and matches[name].sketch.informative
    }
    region = _wrong_nodes(graph, matches, right, result)  # step 2
    if stops:  # step 3
        result.stopped = _incomplete_operations(graph, matches, region, right, tolerance, result)
        region = sorted({*region, *result.stopped})
    result.places = _traced_places(matches, right, tolerance)
    known = {*right, *graph.static}
    for node in region:  # step 4
        if all(name in known or name not in matches for name in consumed_names(graph.nodes[node])):
            result.origins.append(node)
        else:
            result.downstream.append(node)
    return result


def _wrong_nodes(
    graph: Graph,
    matches: Mapping[str, Match],
    right: set[str],
    result: Comparison,
) -> list[int]:
    """Compare every node that depends on the inputs, and note those with a wrong value."""
    region: list[int] = []
    for place, node in enumerate(graph.nodes):
        outputs = [name for name in node.output if name and name not in graph.static]
        readable = [name for name in outputs if name in matches]
        if outputs and not readable:
            result.skipped[graph.name(place)] = "its value could not be read"
        used = _used_values(graph, readable)
        if not used:
            continue
        result.compared += 1
        if not right.issuperset(used):
            region.append(place)
            worst = max(used, key=lambda name: matches[name].gap)
            _note_wrong(result, place, worst, matches[worst])
    return region


def _used_values(graph: Graph, names: Sequence[str]) -> list[str]:
    """Those that a node reads, or that are outputs of the graph."""
    return [name for name in names if graph.consumers(name) or name in graph.outputs]


def _note_wrong(
    result: Comparison,
    node: int,
    name: str,
    match: Match,
) -> None:
    """Remember a wrong value, and the traced value nearest to it."""
    result.gaps[node] = match.gap
    result.note_value(node, name, match.sketch)
    if match.traced is not None:
        result.nearest[node] = match.traced


def _incomplete_operations(
    graph: Graph,
    matches: Mapping[str, Match],
    region: Sequence[int],
    right: set[str],
    tolerance: float,
    result: Comparison,
) -> list[int]:
    """Nodes that reach an inner step of an operation whose whole result is never computed: its last part is missing.

    So it is with a softmax that must give zeros for a fully masked row: the step before the correction is there, the
    correction is not, and the node to name is the softmax, not the MatMul that consumes it.
    """
    complete = {
        m.traced.place
        for m in matches.values()
        if m.traced is not None and m.gap <= tolerance and m.traced.outer is None
    }
    stopped: list[int] = []
    for node in region:
        consumer = matches.get(graph.nodes[node].output[0])
        for name in consumed_names(graph.nodes[node]):
            match = matches.get(name)
            producer = graph.producers.get(name)
            if match is None or producer is None or name not in right:
                continue
            step = _inner_step(match, complete)
            if step is None or _continues(consumer, step) or graph.is_fused_with_constants(node):
                continue
            origin, value = _before_moves(graph, producer, name)
            result.gaps[origin] = 1.0
            result.nearest[origin] = step
            result.note_value(origin, value, matches.get(value, match).sketch)
            right.discard(value)
            stopped.append(origin)
    return stopped


def _inner_step(match: Match, complete: Collection[int]) -> TracedValue | None:
    """The traced value, where it is a step inside an operation without a complete result in the file."""
    traced = match.traced
    if traced is None or traced.outer is None or traced.outer in complete:
        return None
    return traced


def _continues(consumer: Match | None, step: TracedValue) -> bool:
    """Whether the consumer is the next step of the same operation, or its end: then that one is there, and wrong."""
    if consumer is None or consumer.traced is None or consumer.traced is step:
        return False
    next_step = consumer.traced
    is_end = next_step.place == step.outer and consumer.gap < limits.NEAR
    return next_step.outer == step.outer or is_end


def _before_moves(
    graph: Graph,
    node: int,
    value: str,
) -> tuple[int, str]:
    """The producer before nodes that only move values: those leave nothing out."""
    while graph.nodes[node].op_type in _MOVING:
        source = graph.nodes[node].input[0]
        producer = graph.producers.get(source)
        if producer is None:
            break
        node = producer
        value = source
    return node, value


def _right_values(
    graph: Graph,
    matches: Mapping[str, Match],
    tolerance: float,
    wrong: Collection[str],
    *,
    excuse: bool,
) -> set[str]:
    """Values found among the traced ones, and what they were computed from: a right result does not come from wrong parts."""
    matched_values = {
        name: match
        for name, match in matches.items()
        if match.is_right(tolerance) and name not in wrong
    }
    right = {*matched_values, *graph.inputs}
    if excuse:
        _add_excused(graph, matched_values, right, wrong)
    return right


def _add_excused(
    graph: Graph,
    matched_values: Mapping[str, Match],
    right: set[str],
    wrong: Collection[str],
) -> None:
    """Add the values that informative right ones are computed from."""
    waiting = [name for name, m in matched_values.items() if m.sketch.informative and m.same_layout]
    while waiting:
        producer = graph.producers.get(waiting.pop())
        if producer is None or _excuses_nothing(graph, producer, right):
            continue
        for name in consumed_names(graph.nodes[producer]):
            if name in right or name in wrong:
                continue
            if not _selects_from_wrong(graph, producer, name, right):
                right.add(name)
                waiting.append(name)


def _excuses_nothing(graph: Graph, node: int, right: Collection[str]) -> bool:
    """Whether a right result says nothing of what a node reads: it reads sizes, or it saturates behind more values than an operation has."""
    op_type = graph.nodes[node].op_type
    if op_type not in _SATURATING:
        return op_type in _SHAPE_READERS
    waiting = list(consumed_names(graph.nodes[node]))
    unknown: set[str] = set()
    while waiting and len(unknown) <= _MOST_SATURATED:
        name = waiting.pop()
        if name in unknown or name in right or name in graph.static:
            continue
        unknown.add(name)
        if name in graph.producers:
            waiting += consumed_names(graph.nodes[graph.producers[name]])
    return len(unknown) > _MOST_SATURATED


def _selects_from_wrong(
    graph: Graph,
    node: int,
    value: str,
    right: set[str],
) -> bool:
    """Whether a node takes a part of the value or reduces it, and another part of it is not right: then neither is the whole.

    A mean is right although the elements are in a wrong order; what is computed from the elements themselves is not.
    """
    op_type = graph.nodes[node].op_type
    reducing = op_type.startswith("Reduce")
    if op_type not in _SELECTING and not reducing:
        return False
    return any(
        (reducing or graph.nodes[n].op_type in _SELECTING)
        and not right.intersection(graph.nodes[n].output)
        for n in graph.consumers(value)
    )


def _traced_places(
    matches: Mapping[str, Match], right: Collection[str], tolerance: float
) -> dict[str, int]:
    """For the right values that are traced ones in the same order the place of each."""
    return {
        name: match.traced.place
        for name, match in matches.items()
        if name in right
        and match.traced is not None
        and match.same_layout
        and match.sketch.informative
        and match.is_right(tolerance)
    }


def counterparts(
    graph: Graph,
    node: int,
    comparison: Comparison,
    traced: Sequence[TracedValue],
) -> list[TracedValue]:
    """The traced values which this node should have computed, most likely first.

    1. Those of its shape, or of it with leading dims merged.
    2. First what no right value of the file is, then the fewest steps from the right values before the node, then the
       same shape, then the nearest.
    """
    sketch = comparison.sketches.get(node)
    if sketch is None:
        return []
    steps = _steps_from(_places_before(graph, node, comparison, traced), traced)
    present = {content(traced[place].sketch) for place in comparison.places.values()}
    shape = squeezed_shape(sketch)

    def rank(value: TracedValue) -> tuple[bool, int, bool, float]:
        is_present = content(value.sketch) in present
        distant_steps = min(max(steps[value.place], 1), _FAR)
        other_shape = squeezed_shape(value.sketch) != shape
        return is_present, distant_steps, other_shape, distance(sketch, value.sketch)

    return sorted((value for value in traced if _fits(value.sketch, sketch)), key=rank)


def content(sketch: Sketch) -> tuple[int, bool, bytes]:
    """The same for two values with the same elements in the same order, whatever their shapes."""
    return sketch.count, sketch.exact, sketch.projection.tobytes()


def _places_before(
    graph: Graph, node: int, comparison: Comparison, traced: Sequence[TracedValue]
) -> set[int]:
    """The traced values from which the file comes to a node, through values that the module does not compute."""
    places: set[int] = set()
    waiting = list(consumed_names(graph.nodes[node]))
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_WALKED:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in comparison.places:
            places.add(comparison.places[name])
        elif name in graph.inputs:
            places.update(value.place for value in traced if value.op == f"input {name}")
        elif name in graph.producers and name not in graph.static:
            waiting += consumed_names(graph.nodes[graph.producers[name]])
    return places


def _steps_from(places: Collection[int], traced: Sequence[TracedValue]) -> dict[int, int]:
    """For each traced value in how many operations it is computed from those at the places; a view is no step.

    A file's node may be several of the module's operations, such as a convolution with its norm.
    """
    sources = {content(traced[place].sketch) for place in places}
    steps: dict[int, int] = {}
    for value in traced:
        key = content(value.sketch)
        if value.place in places or key in sources:
            steps[value.place] = 0
            continue
        known = [
            steps[place] + (content(traced[place].sketch) != key)
            for place in value.inputs
            if place in steps
        ]
        steps[value.place] = min(known, default=_FAR)
    return steps


def _fits(option: Sketch, sketch: Sketch) -> bool:
    """Whether a traced value could be meant: as many elements of one kind, in a similar shape."""
    if option.count != sketch.count or option.exact != sketch.exact:
        return False
    same_last_dim = option.shape[-1:] == sketch.shape[-1:]
    if same_last_dim or squeezed_shape(option) == squeezed_shape(sketch):
        return True
    return merges_heads(option.shape, sketch.shape)
