"""An optimizer of ONNX Runtime changes the answers: which one, and which nodes it took."""

from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, source_of
from onnxproof.results import Location, Stage, Suspect
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


def locate(scene: Any, limit: float) -> Location:
    """Bisect the list of optimizers: one whose absence mends the answers is the one."""
    graph = Graph.of(scene.file)
    if _gap(scene, KNOWN) > limit:  # the culprit has a name that this list lacks
        return Location(
            stage=Stage.OPTIMIZER,
            evidence="right without optimisation, wrong with it; no single optimizer could be named",
        )
    culprits = list(KNOWN)
    while len(culprits) > 1:
        if scene.deadline.passed:
            return Location(
                stage=Stage.OPTIMIZER,
                evidence="right without optimisation, wrong with it; no time was left to name the optimizer",
            )
        half = culprits[: len(culprits) // 2]
        culprits = half if _gap(scene, half) <= limit else culprits[len(culprits) // 2 :]
        if _gap(scene, culprits) > limit:
            return Location(
                stage=Stage.OPTIMIZER,
                evidence="right without optimisation, wrong with it; several optimizers work together",
            )
    name = culprits[0]
    taken = _taken(scene, name, graph)
    suspects = [
        Suspect(
            node=graph.name(p),
            op_type=graph.nodes[p].op_type,
            ratio=0.0,
            why=f"changed by {name}",
            module=source_of(graph.nodes[p])[0],
            source=source_of(graph.nodes[p])[1],
        )
        for p in taken
    ]
    head = suspects[0] if suspects else None
    return Location(
        stage=Stage.OPTIMIZER,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        optimizer=name,
        module=head.module if head else None,
        source=head.source if head else None,
        evidence=f"the answers are right when the optimizer {name} is disabled, and wrong when only it is at work",
    )


def _gap(scene: Any, disabled: Any) -> float:
    try:
        session = ort.open(scene.path, parse(scene.backend)[1], disabled_optimizers=list(disabled))
        found = Candidate(scene.backend, scene.path, scene.signature, Clock(), session=session).run(
            scene.case.inputs
        )
    except OnnxproofError:
        return float("inf")
    return float(scene.apart(found))


def _taken(scene: Any, name: str, graph: Graph) -> list[int]:
    """Nodes of the file that are there without the optimizer and gone with it, or read other values; failing that, quantizers."""
    kept = {flag: _optimised(scene.path, [name] if flag else []) for flag in (True, False)}
    gone = {key for key, read in kept[True].items() if key not in kept[False]} or {
        key for key, read in kept[True].items() if kept[False][key] != read
    }
    places = [
        p
        for p, node in enumerate(graph.nodes)
        if any(o in gone for o in node.output) or node.name in gone
    ]
    rank = {"QuantizeLinear": 1, "DequantizeLinear": 2}
    places.sort(
        key=lambda p: rank.get(graph.nodes[p].op_type, 0)
    )  # what computes and what rounds before what only scales
    return places or [
        p
        for p, node in enumerate(graph.nodes)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    ]


def _optimised(path: Path, disabled: list[str]) -> dict[str, tuple[str, ...]]:
    """Nodes and values of the graph as the runtime keeps it, by name, each with what it is made from."""
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
    return {
        key: tuple(node.input)
        for node in model.graph.node
        for key in (node.name, *node.output)
        if key
    }
