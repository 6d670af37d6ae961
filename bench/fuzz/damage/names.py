"""Names that are missing, double, undefined, cyclic, odd."""

import onnx

from bench.fuzz.damage import NotApplicable, Target, kind, nodes

ODD = (
    "",
    " ",
    "a\nb",
    "::error file=x::owned\r\n",
    "\x1b[31mred\x1b]0;owned\x07",
    "a" * 5000,
    "../../etc/passwd",
    "\u202eb\u2066",
    "[bold]x[/bold]",
    "[/]",
    "'\"`$(id)",
    "%s%n{0}",
    "\x00nul",
    "</script><b>",
    "-x",
    "a:b=c,d",
)


def rename(model: onnx.ModelProto, old: str, new: str) -> None:
    """Give a value of the main graph another name everywhere."""
    for node in nodes(model):
        for field in (node.input, node.output):
            for place, name in enumerate(field):
                if name == old:
                    field[place] = new
    for entry in (
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
        *model.graph.initializer,
    ):
        if entry.name == old:
            entry.name = new


@kind("value-name-odd")
def value_name_odd(target: Target) -> None:
    """An odd name, used consistently."""
    names = [
        port.name for port in (*target.graph.input, *target.graph.output, *target.graph.initializer)
    ]
    rename(target.model, target.one(names), target.random.choice(ODD))


@kind("node-name-odd")
def node_name_odd(target: Target) -> None:
    """Nodes with odd names, equal names or none."""
    odd = target.random.choice(ODD)
    for node in nodes(target.model):
        node.name = odd if target.random.random() < 0.7 else ""


@kind("dim-name-odd")
def dim_name_odd(target: Target) -> None:
    """A dim with an odd name."""
    dims = [
        dim
        for port in (*target.graph.input, *target.graph.output)
        for dim in port.type.tensor_type.shape.dim
    ]
    target.one(dims).dim_param = target.random.choice(
        [*ODD, "6", "batch*2", "batch - 1", "-1", "1e9", "batch + seq // 0"]
    )


@kind("graph-name-odd")
def graph_name_odd(target: Target) -> None:
    """Odd words about the file itself."""
    target.graph.name = target.random.choice(ODD)
    target.model.producer_name = target.random.choice(ODD)
    target.model.doc_string = target.random.choice(ODD)


@kind("input-undefined")
def input_undefined(target: Target) -> None:
    """A node reads what nobody makes."""
    node = target.node(least_inputs=1)
    node.input[target.random.randrange(len(node.input))] = "nobody_makes_this"


@kind("input-left-out")
def input_left_out(target: Target) -> None:
    """A node with an input too few, or an empty one."""
    node = target.node(least_inputs=1)
    if target.random.random() < 0.5:
        del node.input[-1]
    else:
        node.input[target.random.randrange(len(node.input))] = ""


@kind("input-too-many")
def input_too_many(target: Target) -> None:
    """A node with many inputs more than its operator takes."""
    node = target.node(least_inputs=1)
    node.input.extend([node.input[0]] * target.random.choice([1, 5, 100]))


@kind("output-twice")
def output_twice(target: Target) -> None:
    """Two nodes make one value."""
    makers = [node for node in target.graph.node if node.output]
    if len(makers) < 2:
        raise NotApplicable
    first, second = target.random.sample(makers, 2)
    second.output[0] = first.output[0]


@kind("cycle")
def cycle(target: Target) -> None:
    """A node reads what is made from it."""
    makers = [node for node in target.graph.node if node.output and node.input]
    node = target.one(makers)
    node.input[0] = target.random.choice([node.output[0], makers[-1].output[0]])


@kind("nodes-out-of-order")
def nodes_out_of_order(target: Target) -> None:
    """The right nodes, shuffled or backwards."""
    order = list(target.graph.node)
    if target.random.random() < 0.5:
        order.reverse()
    else:
        target.random.shuffle(order)
    del target.graph.node[:]
    target.graph.node.extend(order)


@kind("output-undefined")
def output_undefined(target: Target) -> None:
    """An output of the graph that nobody makes, or one that is there twice."""
    port = target.one(list(target.graph.output))
    if target.random.random() < 0.5:
        port.name = "nobody_makes_this"
    else:
        target.graph.output.add().CopyFrom(port)


@kind("input-twice")
def input_twice(target: Target) -> None:
    """An input that is there twice, that no node reads, or that is an output too."""
    port = target.graph.input.add()
    port.CopyFrom(target.one(list(target.graph.input)))
    choice = target.random.choice(["twice", "unread", "output"])
    if choice == "unread":
        port.name = "unread"
    elif choice == "output":
        target.graph.output.add().CopyFrom(port)
        del target.graph.input[-1]


@kind("name-shadowed")
def name_shadowed(target: Target) -> None:
    """A subgraph's value has the name of one outside."""
    graph = target.one(target.graphs())
    node = target.one(list(graph.node))
    old, new = node.output[0], target.graph.input[0].name
    for inner in graph.node:
        for place, name in enumerate(inner.input):
            if name == old:
                inner.input[place] = new
    node.output[0] = new
    for port in graph.output:
        port.name = new if port.name == old else port.name
