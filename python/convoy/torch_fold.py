# SPDX-License-Identifier: MIT
"""Sizes that a traced module computes from the sizes of its images, as numbers: padding of TensorFlow's kind is a dozen nodes of an ONNX file."""
from __future__ import annotations

import copy
import math
from typing import Any, Dict, List, Tuple

import numpy as np

from .torch_export import packages

MOST_VALUES = 64  # of a tensor that is computed: sizes and paddings, not weights
DRAWS = ("Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


def _sizes(graph: Any) -> Dict[str, Tuple[int, ...]]:
    """Shapes of tensors, where all dimensions are known."""
    found = {}
    for value in (*graph.input, *graph.value_info):
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            found[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    return found


def _compute(node: Any, known: Dict[str, np.ndarray], opset: int) -> List[np.ndarray]:
    """The outputs of a node, [] if they cannot be computed."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator
    try:
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(known[name].dtype), known[name].shape) for name in dict.fromkeys(node.input) if name]
        graph = helper.make_graph([node], "node", inputs, [helper.make_empty_tensor_value_info(name) for name in node.output])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made = [np.asarray(value) for value in ReferenceEvaluator(model).run(None, {value.name: known[value.name] for value in inputs})]
    except Exception:  # an operator or a type that the evaluator lacks: the node stays
        return []
    return made if all(value.size <= MOST_VALUES for value in made) else []


def _fold_once(onnx: Any, model: Any) -> int:
    """How many nodes became constants."""
    from onnx.shape_inference import infer_shapes
    graph = model.graph
    sizes = _sizes(infer_shapes(model).graph)
    opset = next(o.version for o in model.opset_import if o.domain == "")
    known: Dict[str, np.ndarray] = {}
    nodes: List[Any] = []
    folded = 0
    for node in graph.node:
        made: List[np.ndarray] = []
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None and math.prod(value.dims) <= MOST_VALUES:
                known[node.output[0]] = onnx.numpy_helper.to_array(value)
        elif node.op_type == "Shape" and node.input[0] in sizes and not node.attribute:
            made = [np.array(sizes[node.input[0]], np.int64)]
        elif node.input and node.op_type not in DRAWS and all(name in known or not name for name in node.input):
            made = _compute(node, known, opset)
        known.update(zip(node.output, made))
        nodes += [onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value, name)) for name, value in zip(node.output, made)] or [node]
        folded += bool(made)
    kept = [copy.deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return folded


def fold(path: str) -> bool:
    """Replaces the nodes of an ONNX file that depend on sizes alone by constants; a size behind padding is known when that is. False: there is none."""
    _, onnx = packages()
    model = onnx.load(path)
    rounds = 0
    while _fold_once(onnx, model):
        rounds += 1
    if rounds:
        onnx.save(model, path)
    return rounds > 0
