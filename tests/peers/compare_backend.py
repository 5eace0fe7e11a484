#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models with answers in PyPI's onnx, as ONNX's own backends are tested by: compare_backend.py CONVOY TEST_ONNX_STEP

Those of onnx/backend/test/data. A model that lies in what Convoy takes must give the stored answer, in double and on the devices (test_onnx_step); every other one
must be refused with the reason below. The files are older than Convoy's opsets and end in tensors, not in classes. So each is made opset 13 by onnx's converter,
weights that it computes by ConstantOfShape become tensors, and a Flatten and a Gemm by the identity follow. Rows of numbers, which are no pictures, get two
dimensions of one pixel and a Flatten in front of them; where an operator takes each number by itself, the dimensions alone. The answers of the light models, whose
input is not in the wheel, are onnxruntime's. Exit 77 without onnx or onnxruntime."""
import fnmatch
import glob
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)          # it warns of every tensor that nothing uses
    from onnx import helper, numpy_helper, version_converter
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "compare"))
import safetensors_file                                 # noqa: E402

CONVOY, TEST = sys.argv[1:3]
DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
EACH = {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip"}  # of each number by itself
MOST_COLUMNS, PROJECTIONS = 2000, 64
# Names of models, the first that fits → what the refusal has to say.
REFUSED = {
    "test_LeakyReLU*": None, "test_single_relu_model": None, "test_operator_flatten": None,
    "test_*1d*": "no four dimensions", "test_*3d*": "no four dimensions", "test_*MaxPool2d_stride_padding_dilation": "attribute dilations is 10,10",
    "test_ConstantPad2d": "something else than zeros", "test_ReflectionPad2d": "something else than zeros", "test_ReplicationPad2d": "something else than zeros",
    "test_operator_pad": "something else than zeros",
    "test_ConvTranspose2d*": "(ConvTranspose)", "test_operator_convtranspose": "(ConvTranspose)", "test_ELU": "no four dimensions", "test_SELU": "no four dimensions",
    "test_Softsign": "no four dimensions", "test_Embedding*": "no four dimensions", "test_GLU_dim": "no four dimensions", "test_GLU": "(Split)", "test_*log_softmax_dim3": "attribute axis",
    "test_softmax_functional_dim3": "attribute axis", "test_*og_softmax_lastdim": "only supported as the network's output", "test_LogSoftmax": "only supported as the network's output",
    "test_PReLU*": "(PRelu)", "test_PixelShuffle": "(Reshape)", "test_PoissonNLLLLoss_no_reduce": "(Exp)", "test_Softmin": "(Neg)", "test_Softplus": "(Softplus)",
    "test_operator_addconstant": "no four dimensions", "test_operator_exp": "(Exp)", "test_operator_sqrt": "(Sqrt)", "test_operator_selu": "(Selu)",
    "test_operator_non_float_params": "no four dimensions", "test_operator_params": "(Add)", "test_operator_permute2": "no four dimensions", "test_operator_view": "no four dimensions",
    "test_operator_maxpool": "no four dimensions", "test_operator_index": "(Slice)", "test_operator_reduced_mean*": "not rows and columns",
    "test_operator_reduced_sum*": "(ReduceSum)", "test_operator_repeat": "(Tile)", "test_operator_repeat_dim_overflow": "(Tile)",
    "test_operator_symbolic_override": "(InstanceNormalization)", "test_operator_chunk": "no four dimensions", "test_operator_*": None,
    "test_sequence_model[67]": "no four dimensions", "test_shrink": "no four dimensions", "test_sign_model": "no four dimensions", "test_strnorm*": "dimensions",
    "light_bvlc_alexnet": "(LRN)", "light_inception_v1": "(LRN)", "light_zfnet512": "(LRN)", "light_shufflenet": "(Reshape)",
}


def convoy_says(path):
    return subprocess.run([CONVOY, "net", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tensor_of(path):
    with open(path, "rb") as f:
        return numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))


def models():
    """(name, model, files of inputs, of outputs; both None without)"""
    for folder in ("pytorch-converted", "pytorch-operator", "simple"):
        for path in sorted(glob.glob(os.path.join(DATA, folder, "*", "model.onnx"))):
            at = os.path.join(os.path.dirname(path), "test_data_set_0")
            inputs, outputs = (sorted(glob.glob(os.path.join(at, f"{kind}_*.pb"))) for kind in ("input", "output"))
            yield os.path.basename(os.path.dirname(path)), onnx.load(path), inputs, outputs
    for path in sorted(glob.glob(os.path.join(DATA, "light", "*.onnx"))):
        yield os.path.basename(path)[:-5], onnx.load(path), None, None


def fold(model):
    """ConstantOfShape of stored shapes becomes a tensor."""
    graph = model.graph
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            value = numpy_helper.to_array(node.attribute[0].t) if node.attribute else np.zeros(1, np.float32)
            made = np.full(known[node.input[0]], value[0], value.dtype)
            graph.initializer.append(numpy_helper.from_array(made, node.output[0]))
            graph.input.append(helper.make_tensor_value_info(node.output[0], graph.initializer[-1].data_type, made.shape))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def free_inputs(model):
    stored = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in stored]


def dims_of(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def picture(model, x):
    """x as Convoy's input takes it; the model's input is made that."""
    graph, source = model.graph, free_inputs(model)[0]
    if x.ndim in (2, 3) and {node.op_type for node in graph.node} <= EACH | {"Constant"}:
        x = x.reshape(x.shape + (1,) * (4 - x.ndim))
    elif x.ndim == 2:
        for node in graph.node:
            for k, name in enumerate(node.input):
                if name == source.name:
                    node.input[k] = "row_of_" + name
        graph.node.insert(0, helper.make_node("Flatten", [source.name], ["row_of_" + source.name]))
        x = x.reshape(x.shape + (1, 1))
    del source.type.tensor_type.shape.dim[:]
    for size in x.shape:
        source.type.tensor_type.shape.dim.add().dim_value = size
    return x


def classes(model, answer):
    """The model with rows of scores at its end, and what these have to be: all numbers of a sample, or sums of them where there are many."""
    graph, columns = model.graph, answer.shape[1]
    weight = np.eye(columns) if columns <= MOST_COLUMNS else np.random.default_rng(1).choice([-1.0, 1.0], (PROJECTIONS, columns))
    last = graph.output[0].name
    if any(node.op_type == "Pad" and last in node.output for node in graph.node):  # which is part of what is behind it
        channels = dims_of(graph.output[0])[1]
        graph.initializer.append(numpy_helper.from_array(np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1), "straight.weight"))
        graph.node.append(helper.make_node("Conv", [last, "straight.weight"], ["straight"]))
        last = "straight"
    graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "scores.weight"))
    graph.node.append(helper.make_node("Flatten", [last], ["row"]))
    graph.node.append(helper.make_node("Gemm", ["row", "scores.weight"], ["scores"], transB=1))
    del graph.output[:], graph.value_info[:]
    graph.output.append(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, None))
    return answer.astype(np.float64) @ weight.T


def prepare(model, inputs, outputs):
    """(the model as Convoy may take it, its input and answer, or None)"""
    fold(model)
    model = version_converter.convert_version(model, 13)
    if len(free_inputs(model)) != 1 or len(model.graph.output) != 1:
        return model, None
    x = tensor_of(inputs[0]) if inputs else np.random.default_rng(0).random(dims_of(free_inputs(model)[0]), np.float32)
    if inputs:
        answer = tensor_of(outputs[0])
    else:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        answer = session.run(None, {free_inputs(model)[0].name: x})[0]
    if x.ndim < 2 or x.dtype != np.float32 or answer.dtype != np.float32 or len(answer) != len(x):
        return model, None
    x = picture(model, x)
    return model, (x, classes(model, answer.reshape(len(x), -1)))


def reason_of(name):
    return next((reason for pattern, reason in REFUSED.items() if fnmatch.fnmatch(name, pattern)), None)


def judge(name, model, data, folder):
    """(what is wrong or "", what it came to)"""
    path, reason = os.path.join(folder, name), reason_of(name)
    onnx.save(model, path + ".onnx")
    done = convoy_says(path + ".onnx")
    if reason or not data:
        reason = reason or "several inputs"
        return ("" if done.returncode == 2 and reason in done.stderr else f"not refused with '{reason}': exit {done.returncode}: {done.stderr}"), "refused: " + reason
    if done.returncode:
        return done.stderr, ""
    safetensors_file.write(path + ".safetensors", {"x": data[0], "labels": np.zeros(len(data[0]), np.int64), "logits": data[1].astype(np.float32)})
    done = subprocess.run([TEST], env=dict(os.environ, CVY_TEST_ONNX=folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return ("" if done.returncode == 0 else done.stdout), "as the answer"


def main():
    failed, counts = 0, {}
    for name, model, inputs, outputs in models():
        with tempfile.TemporaryDirectory() as folder:
            wrong, what = judge(name, *prepare(model, inputs, outputs), folder)
        failed += bool(wrong)
        counts[what.split(":")[0]] = counts.get(what.split(":")[0], 0) + (not wrong)
        print(f"{'FAILED' if wrong else 'ok    '} {name}: {wrong.replace(folder + '/', '') or what}", flush=True)
    print(f"{counts}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
