"""Graphs that are built, edited, checked, run node by node, copied and written."""

from __future__ import annotations

import copy
import importlib
import io
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import fx, nn

torch = pytest.importorskip("torch")
importlib.import_module("torch.fx")
LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])


def network(lib: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU())
            self.head = lib.nn.Linear(4, 2)
            self.unused = lib.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return lib.relu(self.head(self.layers(x)) + 1) * lib.relu(x).sum()

    torch.manual_seed(0)
    net = Net()
    if lib is metaop:
        state = network(torch).state_dict()
        net.load_state_dict({k: metaop.from_numpy(v.numpy()) for k, v in state.items()})
    return net


def names(graph: Any) -> list[str]:
    return [node.name for node in graph.nodes]


def same_in_both(result: Any) -> None:
    """What a function of a library gives is equal in both libraries."""
    ours, theirs = result(metaop), result(torch)
    assert names(ours.graph) == names(theirs.graph)
    assert ours.code.replace("metaop.", "torch.") == theirs.code
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    found, expected = ours(metaop.from_numpy(x)), theirs(torch.from_numpy(x))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-5)
    ours.graph.lint()


def exchanged(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    for node in traced.graph.find_nodes(op="call_function", target=lib.relu):
        node.target = lib.tanh
    traced.recompile()
    return traced


def inserted(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    first = next(n for n in traced.graph.nodes if n.target == lib.relu)
    with traced.graph.inserting_after(first):
        new = traced.graph.call_function(lib.sigmoid, (first,))
        first.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    with traced.graph.inserting_before(first):
        weight = traced.graph.get_attr("head.weight")
        total = traced.graph.call_method("sum", (weight,), {"dim": 1})
        first.update_arg(0, traced.graph.call_function(operator.mul, (first.args[0], total)))
    with traced.graph.inserting_before():
        traced.graph.call_function(print, ("never",), name="told")
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def erased(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    last = traced.graph.output_node().args[0]
    last.replace_all_uses_with(last.args[0])
    traced.graph.erase_node(last)
    traced.graph.eliminate_dead_code()
    traced.delete_all_unused_submodules()
    assert not hasattr(traced, "unused") and hasattr(traced.layers, "0")
    traced.recompile()
    return traced


def moved(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    order = {node.name: node for node in traced.graph.nodes}
    order["x"].append(order["relu_1"])
    order["layers_0"].prepend(order["sum_1"])
    traced.recompile()
    return traced


def with_proxies(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    node = next(n for n in traced.graph.nodes if n.target == lib.relu)
    with traced.graph.inserting_before(node):
        proxy = lib.fx.Proxy(node.args[0])
        new = lib.where(proxy > 0, proxy, lib.exp(proxy) - 1) + proxy.mean(dim=1)[:, None]
    node.replace_all_uses_with(new.node)
    traced.graph.erase_node(node)
    traced.recompile()
    return traced


def transformed(lib: Any) -> Any:
    class Changed(lib.fx.Transformer):  # type: ignore[misc,name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is lib.relu:
                return -lib.tanh(args[0])
            return super().call_function(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_module(target, args, kwargs)
            return result * 2 if target == "head" else result

    return Changed(lib.fx.symbolic_trace(network(lib))).transform()


def rewritten(lib: Any) -> Any:
    traced = lib.fx.symbolic_trace(network(lib))
    matches = lib.fx.replace_pattern(
        traced, lambda a, b: lib.relu(a + 1) * b, lambda a, b: lib.sigmoid(a) - b
    )
    assert len(matches) == 1 and matches[0].anchor.name == "mul"
    return traced


def rewritten_by_modules(lib: Any) -> Any:
    class Wanted(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.head = lib.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.head(x) + 1

    class Given(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.other = lib.nn.Tanh()

        def forward(self, x: Any) -> Any:
            return self.other(x)[:, :2]

    traced = lib.fx.symbolic_trace(network(lib))
    given = lib.fx.symbolic_trace(Given())
    assert len(lib.fx.replace_pattern(traced, Wanted(), given)) == 1
    assert isinstance(traced.other, lib.nn.Tanh)
    return traced


@pytest.mark.parametrize(
    "edit",
    [
        exchanged, inserted, erased, moved, with_proxies, transformed, rewritten,
        rewritten_by_modules,
    ],
)  # fmt: skip
def test_edited_graphs_are_those_of_pytorch(edit: Any) -> None:
    same_in_both(edit)


@pytest.mark.parametrize(
    ("function", "pattern", "replacement", "count"),
    [
        ("neg(relu(neg(relu(x))))", "neg(relu(a))", "tanh(a)", 2),
        ("relu(x) + relu(x)", "relu(a)", "tanh(a)", 2),
        ("add(relu(x), neg(relu(x)))", "add(a, neg(a))", "sub(a, a)", 0),
        ("add(*(lambda r: (r, neg(r)))(relu(x)))", "neg(relu(a))", "tanh(a)", 0),
        ("neg(neg(neg(x)))", "neg(neg(a))", "tanh(a)", 1),
        ("sum(x, dim=1)", "sum(a, dim=0)", "tanh(a)", 0),
        ("sum(x, 1)", "sum(a, dim=1)", "tanh(a)", 0),
        ("cat([relu(x), neg(x)])", "cat([relu(a), neg(a)])", "add(a, a)", 1),
        ("cat([relu(x), x])", "cat([relu(a), b])", "add(a, b)", 0),
        ("add(x, 2) + add(x, 3)", "add(a, b)", "mul(a, b)", 2),
    ],
)
def test_patterns_are_found_where_pytorch_finds_them(
    function: str, pattern: str, replacement: str, count: int
) -> None:
    def replaced(lib: Any) -> Any:
        def parsed(arguments: str, text: str) -> Any:
            return eval(f"lambda {arguments}: {text}", dict(vars(lib.fx), **functions))

        functions = {n: getattr(lib, n) for n in "neg relu tanh add sub mul sum cat".split()}
        arguments = "a, b" if "b" in pattern else "a"
        traced = lib.fx.symbolic_trace(parsed("x", function))
        matches = lib.fx.replace_pattern(
            traced, parsed(arguments, pattern), parsed(arguments, replacement)
        )
        return len(matches), traced

    counts = [replaced(lib)[0] for lib in (metaop, torch)]
    assert counts == [count, count]
    same_in_both(lambda lib: replaced(lib)[1])


def test_filters_and_callbacks_of_patterns() -> None:
    from metaop.fx.subgraph_rewriter import replace_pattern_with_filters

    def traced() -> Any:
        return fx.symbolic_trace(lambda x: metaop.add(x, 1) * metaop.add(x, 2))

    def pattern(x: Any) -> Any:
        return metaop.add(x, 1)

    module = traced()
    assert len(replace_pattern_with_filters(module, pattern, metaop_sub)) == 1
    module = traced()
    found = replace_pattern_with_filters(module, pattern, metaop_sub, ignore_literals=True)
    assert len(found) == 2 and [r.replacements[0].name for r in found] == ["sub", "sub_1"]
    second = [lambda match, graph, wanted: match.returning_nodes[0].args[1] == 2]
    module = traced()
    found = replace_pattern_with_filters(
        module, pattern, metaop_sub, match_filters=second, ignore_literals=True
    )
    assert len(found) == 1 and module(metaop.tensor([4.0])).tolist() == [-5.0]
    module = traced()
    replace_pattern_with_filters(
        module,
        pattern,
        replacement_callback=lambda match, graph, wanted: fx.Tracer().trace(metaop_sub),
    )
    assert module(metaop.tensor([4.0])).tolist() == [-6.0]
    with pytest.raises(ValueError, match="either a replacement"):
        replace_pattern_with_filters(module, pattern)


def metaop_sub(x: Any) -> Any:
    return metaop.sub(x, 5)


@LIBRARIES
def test_interpreters_run_node_by_node(lib: Any) -> None:
    ran: list[str] = []

    class Told(lib.fx.Interpreter):  # type: ignore[misc,name-defined]
        def run_node(self, n: Any) -> Any:
            ran.append(n.name)
            return super().run_node(n)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            target = lib.tanh if target is lib.relu else target
            return super().call_function(target, args, kwargs)

    traced = lib.fx.symbolic_trace(network(lib))
    x = lib.ones(2, 3)
    found = Told(traced).run(x)
    assert ran == names(traced.graph)
    np.testing.assert_allclose(
        found.detach().numpy(), exchanged(lib)(x).detach().numpy(), rtol=1e-6
    )
    head = next(node for node in traced.graph.nodes if node.target == "head")
    known = lib.fx.Interpreter(traced).run(x, initial_env={head: lib.full((2, 2), 2.0)})
    np.testing.assert_allclose(known.detach().numpy(), np.full((2, 2), 18.0))
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        lib.fx.Interpreter(traced).run()


@LIBRARIES
def test_graphs_are_checked(lib: Any) -> None:
    traced = lib.fx.symbolic_trace(network(lib))
    first, second = list(traced.graph.nodes)[:2]
    with pytest.raises(RuntimeError, match="still had 2 users"):
        traced.graph.erase_node(first)
    with pytest.raises((AssertionError, ValueError), match="foo"):
        lib.fx.Graph().create_node("foo", "x")
    with pytest.raises(ValueError, match="Callable is expected"):
        lib.fx.Graph().create_node("call_function", "x")
    with pytest.raises(TypeError, match="mutation"):
        lib.fx.Graph().call_function(print, ([1, 2],)).args[0].append(3)
    second.append(first)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        traced.graph.lint()
    second.prepend(first)
    traced.graph.lint()
    del traced.layers
    with pytest.raises(RuntimeError, match="references nonexistent attribute layers"):
        traced.graph.lint()


@LIBRARIES
def test_modules_of_graphs_made_by_hand(lib: Any) -> None:
    graph = lib.fx.Graph()
    x = graph.placeholder("x", type_expr=int, default_value=lib.pi)
    weight = graph.get_attr("deep.weight")
    graph.output(graph.call_method("sum", (graph.call_function(lib.mul, (weight, x)),)))
    weight_of = {"deep.weight": lib.nn.Parameter(lib.tensor([1.0, 2.0]))}
    module = lib.fx.GraphModule(weight_of, graph, "Made")
    assert type(module).__name__ == "Made" and "x : int = 3.14159" in module.code
    assert module(2).item() == 6 and list(dict(module.named_parameters())) == ["deep.weight"]
    other = lib.fx.GraphModule(lib.nn.Module(), lib.fx.symbolic_trace(lambda x: x + 1).graph)
    assert module(3).item() == 9 and other(1) == 2
    with pytest.raises(RuntimeError, match="not provided"):
        lib.fx.GraphModule({}, graph)


@LIBRARIES
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_are_independent(lib: Any, way: str) -> None:
    def written(x):  # type: ignore[no-untyped-def]
        return lib.relu(x)[:, 1:] + 1

    # PyTorch writes annotations that are texts into code that it cannot read again.
    whole = lib is metaop or way == "deepcopy"
    traced = exchanged(lib) if whole else lib.fx.symbolic_trace(written)
    if way == "deepcopy":
        copied = copy.deepcopy(traced)
    elif way == "pickle":
        copied = pickle.loads(pickle.dumps(traced))
    else:
        file = io.BytesIO()
        lib.save(traced, file)
        file.seek(0)
        copied = lib.load(file, weights_only=False)
    assert names(copied.graph) == names(traced.graph)
    x = lib.tensor([[1.0, -2.0, 3.0]])
    expected = traced(x).tolist()
    assert copied(x).tolist() == expected
    copied.graph.output_node().args = (3,)
    copied.recompile()
    assert copied(x) == 3 and traced(x).tolist() == expected


def test_tables_and_readable_code(capsys: pytest.CaptureFixture[str]) -> None:
    traced = fx.symbolic_trace(network(metaop))
    traced.graph.print_tabular()
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[2].split() == ["placeholder", "x", "x", "()", "{}"]
    assert "call_function  add       operator.add  (head, 1)" in "\n".join(lines)
    text = traced.print_readable()
    assert text.startswith("class Net(metaop.nn.Module):\n    def forward(self, x : _Any_) ->")
    assert capsys.readouterr().out == text + "\n"
    assert "(head): Linear" in str(traced) and traced.code in str(traced)


def test_a_converted_program_uses_it() -> None:
    pytest.importorskip("libcst")
    from metaop.convert import convert_source

    program = (
        "import torch\nimport torch.fx as fx\nfrom torch.fx import symbolic_trace, Transformer\n"
        "from torch.fx.graph_module import GraphModule\n"
        "class Negated(Transformer):\n"
        "    def call_function(self, target, args, kwargs):\n"
        "        return -super().call_function(target, args, kwargs)\n"
        "traced: torch.fx.GraphModule = symbolic_trace(lambda x: torch.relu(x))\n"
        "y = Negated(traced).transform()(torch.ones(2))\n"
        "kinds = {n.op for n in traced.graph.nodes if isinstance(n, fx.Node)}\n"
        "made = isinstance(traced, GraphModule)\n"
    )
    conversion = convert_source(program)
    assert "unsupported" not in conversion.text
    values: dict[str, Any] = {}
    exec(conversion.text, values)
    assert values["y"].tolist() == [-1, -1] and values["made"]
    assert values["kinds"] == {"placeholder", "call_function", "output"}


def test_quantised_and_trained_networks_stay_so() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    traced = fx.symbolic_trace(net)
    assert not traced.training
    assert traced.train()(metaop.ones(3, 2)).shape == (3, 2)
