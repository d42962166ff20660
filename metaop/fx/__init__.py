"""Graphs of Python functions that programs read, change and run again, as in `torch.fx`.

`symbolic_trace` runs a module or a function once, on proxies, and writes down what it does as
nodes. `metaop.inspect.graph` shows what operators become instead.
"""

from metaop.fx import immutable_collections
from metaop.fx._symbolic_trace import (
    PH,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)
from metaop.fx.graph import Graph
from metaop.fx.graph_module import GraphModule
from metaop.fx.interpreter import Interpreter, Transformer
from metaop.fx.node import Node, has_side_effect, map_arg
from metaop.fx.proxy import Proxy
from metaop.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "immutable_collections",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
