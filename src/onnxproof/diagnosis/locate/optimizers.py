"""An optimizer of ONNX Runtime changes the answers: which one, and which nodes it took."""

from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import onnxruntime

from onnxproof.diagnosis.locate.scene import Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, make_suspect
from onnxproof.results import Location, Stage
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.system import temporary

KNOWN = (
    "ConstantFolding",
    "EliminateIdentity",
    "EliminateDropout",
    "EliminateSlice",
    "EliminateCast",
    "NoopElimination",
    "DivMulFusion",
    "MulIntegerToFloat",
    "FuseReluClip",
    "GemmSumFusion",
    "GemmTransposeFusion",
    "NotWhereFusion",
    "ConvAddFusion",
    "ConvMulFusion",
    "ConvBNFusion",
    "PadFusion",
    "MatmulBNFusion",
    "LabelEncoderFusion",
    "ExpandElimination",
    "CastElimination",
    "UnsqueezeElimination",
    "ConstantSharing",
    "CommonSubexpressionElimination",
    "PropagateCastOps",
    "DoubleQDQPairsRemover",
    "QDQPropagationTransformer",
    "QDQSelectorActionTransformer",
    "QDQFinalCleanupTransformer",
    "WeightBiasQuantization",
    "EnsureUniqueDQForNodeUnit",
    "ReshapeFusion",
    "FreeDimensionOverrideTransformer",
    "QDQS8ToU8Transformer",
    "GeluFusion",
    "GeluFusionL1",
    "GeluFusionL2",
    "LayerNormFusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
    "SimplifiedLayerNormFusion",
    "AttentionFusion",
    "EmbedLayerNormFusion",
    "GatherSliceToSplitFusion",
    "GatherToSliceFusion",
    "MatMulActivationFusion",
    "MatMulAddFusion",
    "MatmulTransposeFusion",
    "MatMulScaleFusion",
    "MatMulNBitsFusion",
    "ConvActivationFusion",
    "ConvAddActivationFusion",
    "GemmActivationFusion",
    "MatMulIntegerToFloatFusion",
    "DynamicQuantizeMatMulFusion",
    "BiasGeluFusion",
    "BiasSoftmaxFusion",
    "BiasDropoutFusion",
    "FastGeluFusion",
    "QuickGeluFusion",
    "SkipLayerNormFusion",
    "TransposeOptimizer",
    "NchwcTransformer",
    "NhwcTransformer",
    "IsInfReduceSumFusion",
    "RemoveDuplicateCastTransformer",
    "QuickGeluFusionTransformer",
    "DQMatMulToMatMulNBits",
    "WhereDummyDq",
    "RocmBlasAltImpl",
    "PreShapeNodeElimination",
    "Level2_RuleBasedTransformer",
    "Level1_RuleBasedTransformer",
)
"""The graph transformers of ONNX Runtime, as `disabled_optimizers` takes them."""
_RANK = {"QuantizeLinear": 1, "DequantizeLinear": 2}


def locate(scene: Scene, limit: float) -> Location:
    """Bisect the list of optimizers: one whose absence fixes the answers is the one.

    1. Disable all: if the answers are still wrong, the guilty one has a name that the list lacks.
    2. Halve the list while disabling what is left of it is enough.
    3. Name the nodes that the one that is left changed.
    """
    try:
        name = halve(lambda names: _error(scene, names) <= limit, lambda: scene.deadline.passed)
    except Unnamed as unnamed:
        return _unnamed(str(unnamed))
    location = Location(
        stage=Stage.OPTIMIZER,
        optimizer=name,
        evidence=f"the answers are right when the optimizer {name} is disabled, and wrong when only it is at work",
    )
    graph = Graph.of(scene.file)
    changed = _changed_nodes(scene, name, graph)  # step 3
    why = f"changed by {name}"
    return name_suspects(location, [make_suspect(graph, place, 0.0, why) for place in changed])


class Unnamed(Exception):
    """No single optimizer is it, and why."""


def halve(right: Callable[[Sequence[str]], bool], late: Callable[[], bool]) -> str:
    """Steps 1 and 2 of `locate`: the one optimizer without which the answers are `right`.

    Raises:
        Unnamed: there is no single one, or it is too `late`.
    """
    if not right(KNOWN):
        raise Unnamed("no single optimizer could be named")
    remaining = list(KNOWN)
    while len(remaining) > 1:
        if late():
            raise Unnamed("no time was left to name the optimizer")
        middle = len(remaining) // 2
        if right(remaining[:middle]):
            remaining = remaining[:middle]
        else:
            remaining = remaining[middle:]
            if not right(remaining):
                raise Unnamed("several optimizers work together")
    return remaining[0]


def _unnamed(why: str) -> Location:
    """The stage without the name of an optimizer."""
    return Location(
        stage=Stage.OPTIMIZER, evidence=f"right without optimisation, wrong with it; {why}"
    )


def _error(scene: Scene, disabled: Sequence[str]) -> float:
    """The error of the answers without these optimizers."""
    try:
        session = ort.open(scene.path, parse(scene.backend)[1], disabled_optimizers=list(disabled))
        candidate = Candidate(scene.backend, scene.path, scene.signature, Clock(), session=session)
        answers = candidate.run(scene.case.inputs)
    except OnnxproofError:
        return float("inf")
    return scene.error(answers)


def _changed_nodes(
    scene: Scene,
    optimizer: str,
    graph: Graph,
) -> list[int]:
    """Nodes of the file that are there without the optimizer and gone with it, or read other values; failing that, quantizers.

    What computes comes before what rounds, and that before what only scales.
    """
    without = _optimised_graph(scene.path, [optimizer])
    with_it = _optimised_graph(scene.path, [])
    gone = {key for key in without if key not in with_it}
    if not gone:
        gone = {key for key, inputs in without.items() if with_it[key] != inputs}
    nodes = enumerate(graph.nodes)
    changed = [p for p, node in nodes if node.name in gone or gone.intersection(node.output)]
    changed.sort(key=lambda place: _RANK.get(graph.nodes[place].op_type, 0))
    return changed or [p for p, node in enumerate(graph.nodes) if node.op_type in _RANK]


def _optimised_graph(path: Path, disabled: list[str]) -> dict[str, tuple[str, ...]]:
    """Nodes and values of the graph as the runtime keeps it, by name, each with what it is computed from."""
    with temporary.Folder() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        try:
            ort.native(path, options, disabled_optimizers=disabled)
        except Exception:  # a graph that can't be written tells nothing, and the location says so by naming no node
            return {}
        model = onnx.load(options.optimized_model_filepath, load_external_data=False)
    inputs: dict[str, tuple[str, ...]] = {}
    for node in model.graph.node:
        for key in (node.name, *node.output):
            if key:
                inputs[key] = tuple(node.input)
    return inputs
