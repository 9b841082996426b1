"""Holds QDQ models against the trainer's own predictions: check_qdq.py MODEL.onnx X.f32 LOGITS.f32 UNITS OURS ...

onnx.checker with shape inference must accept each model; its integers are int8 under powers of two. The model is
then evaluated in numpy by ONNX's rules (halves to even, -128 is a number), and no logit may be further than UNITS of
the output's scale from the trainer's. With the trainer's own rounding (halves away from zero, -127 the least) in the
place of ONNX's it is OURS: 0, the same bits, but for sums, whose operands the trainer aligns first.
"""
import sys

import numpy as np
import onnx
from onnx import numpy_helper


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def windows(x, kernel, strides, pads, dilations, fill):
    """(N, C, H, W) -> (N, C, out H, out W, kernel H, kernel W)"""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    reach = [dilations[i] * (kernel[i] - 1) + 1 for i in range(2)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return view[:, :, ::strides[0], ::strides[1], ::dilations[0], ::dilations[1]]


def conv(x, w, b, a):
    groups = a.get('group', 1)
    parts = windows(x, w.shape[2:], a.get('strides', [1, 1]), a.get('pads', [0] * 4), a.get('dilations', [1, 1]), 0.0)
    n, c = w.shape[0] // groups, w.shape[1]
    out = [np.einsum('nchwij,kcij->nkhw', parts[:, g * c:(g + 1) * c], w[g * n:(g + 1) * n]) for g in range(groups)]
    out = np.concatenate(out, axis=1)
    return out if b is None else out + b[None, :, None, None]


def pool(x, a, is_max):
    pads = a.get('pads', [0] * 4)
    fill = -np.inf if is_max else 0.0
    parts = windows(x, a['kernel_shape'], a.get('strides', [1, 1]), pads, a.get('dilations', [1, 1]), fill)
    if is_max:
        return parts.max(axis=(4, 5))
    ones = windows(np.ones_like(x), a['kernel_shape'], a.get('strides', [1, 1]), pads, [1, 1], 0.0)
    count = np.prod(a['kernel_shape']) if a.get('count_include_pad', 0) else ones.sum(axis=(4, 5))
    return parts.sum(axis=(4, 5)) / count


def rounded(x, is_onnx):
    if is_onnx:
        return np.clip(np.rint(x), -128, 127)
    return np.clip(np.sign(x) * np.floor(np.abs(x) + 0.5), -127, 127)


def evaluate(graph, x, is_onnx):
    """In double, in which all sums of these models are exact."""
    values = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in graph.initializer}
    values[graph.input[0].name] = x
    for node in graph.node:
        i = [values[name] if name else None for name in node.input]
        a = attributes(node)
        kind = node.op_type
        if kind == 'QuantizeLinear':
            y = rounded(i[0] / i[1], is_onnx)
        elif kind == 'DequantizeLinear':
            y = i[0] * i[1]
        elif kind == 'Conv':
            y = conv(i[0], i[1], i[2] if len(i) > 2 else None, a)
        elif kind == 'Gemm':
            y = i[0] @ (i[1].T if a.get('transB', 0) else i[1]) + (i[2] if len(i) > 2 else 0.0)
        elif kind in ('MaxPool', 'AveragePool'):
            y = pool(i[0], a, kind == 'MaxPool')
        elif kind == 'GlobalAveragePool':
            y = i[0].mean(axis=(2, 3), keepdims=True)
        elif kind == 'Relu':
            y = np.maximum(i[0], 0.0)
        elif kind == 'Clip':
            y = np.clip(i[0], i[1], i[2])
        elif kind == 'Add':
            y = i[0] + i[1]
        elif kind == 'Concat':
            y = np.concatenate(i, axis=a['axis'])
        elif kind == 'Flatten':
            y = i[0].reshape(i[0].shape[0], -1)
        elif kind in ('Identity', 'Dropout'):
            y = i[0]
        else:
            sys.exit('%s is no operator of a QDQ model here' % kind)
        values[node.output[0]] = y
    return values[graph.output[0].name]


def check(path, x_path, logits_path, units, ours):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    graph = model.graph
    kinds = {t.name: t.data_type for t in graph.initializer}
    for node in graph.node:
        if node.op_type in ('QuantizeLinear', 'DequantizeLinear'):
            scale = float(numpy_helper.to_array(next(t for t in graph.initializer if t.name == node.input[1])))
            assert np.frexp(scale)[0] == 0.5, (node.name, scale)
            assert kinds[node.input[2]] == onnx.TensorProto.INT8, node.name
        if node.op_type in ('Conv', 'Gemm'):
            makers = {n.output[0]: n for n in graph.node}
            for name in node.input:
                assert makers[name].op_type in ('DequantizeLinear', 'Relu', 'Clip', 'MaxPool', 'Flatten', 'Identity',
                                                'Dropout'), (node.name, name)
            assert kinds[makers[node.input[1]].input[0]] == onnx.TensorProto.INT8, node.name
    shape = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim][1:]
    x = np.fromfile(x_path, '<f4').astype(np.float64).reshape([-1] + shape)
    wanted = np.fromfile(logits_path, '<f4').astype(np.float64).reshape(len(x), -1)
    last = [n for n in graph.node if n.op_type == 'DequantizeLinear'][-1]
    scale = float(numpy_helper.to_array(next(t for t in graph.initializer if t.name == last.input[1])))
    found = {}
    for is_onnx in (True, False):
        away = np.abs(evaluate(graph, x, is_onnx).reshape(wanted.shape) - wanted) / scale
        print('%s: %s rounding: at most %g units, %.4f of the logits differ' %
              (path, "ONNX's" if is_onnx else 'our', away.max(), (away > 0).mean()), flush=True)
        found[is_onnx] = away.max()
    assert found[True] <= units and found[False] <= ours, (path, found)


for first in range(1, len(sys.argv), 5):
    check(*sys.argv[first:first + 3], *map(float, sys.argv[first + 3:first + 5]))
