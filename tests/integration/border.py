"""An exported file takes what the file it came from took, and means the same.

border.py CHECK_NETS GOLDEN WORK: trains and exports networks of tests/golden/onnx, gives the original file the exported
one's weights, feeds both the same inputs under the original's names and types, and compares what they answer. Both are
run by the evaluator below, which shares no code with the library; the exported one by onnx.reference too,
where this onnx has it.
"""
import math
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper

NETWORKS = ['bert_inputs', 'bert13', 'positions', 'siamese', 'tied', 'tied_rows']
TYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
ERF = np.vectorize(math.erf)


def gemm(a, x, w, b=0.0):
    x, w = x.T if a.get('transA') else x, w.T if a.get('transB') else w
    return a.get('alpha', 1.0) * (x @ w) + a.get('beta', 1.0) * b


def layer_norm(a, x, scale, shift=0.0):
    centred = x - x.mean(-1, keepdims=True)
    assert a.get('axis', -1) in (-1, x.ndim - 1)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + a.get('epsilon', 1e-5)) * scale + shift


def softmax(a, x):
    e = np.exp(x - x.max(a.get('axis', -1), keepdims=True))
    return e / e.sum(a.get('axis', -1), keepdims=True)


def slice_(a, x, starts, ends, axes=None, steps=None):
    cut = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else int(steps[i])
        cut[int(axis)] = slice(int(starts[i]), int(ends[i]), step)
    return x[tuple(cut)]


def reshape(a, x, shape):
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def unsqueeze(a, x, axes):
    return np.expand_dims(x, tuple(int(i) for i in axes))


def typed(x):
    """As a file would have it: float32, or whole numbers."""
    return x.astype(np.float32) if x.dtype == np.float64 else x


OPERATORS = {
    'Add': lambda a, x, y: x + y, 'Sub': lambda a, x, y: x - y, 'Mul': lambda a, x, y: x * y,
    'Div': lambda a, x, y: x // y if x.dtype.kind == 'i' else x / y, 'Pow': lambda a, x, y: x ** y,
    'Sqrt': lambda a, x: np.sqrt(x), 'Tanh': lambda a, x: np.tanh(x), 'Relu': lambda a, x: np.maximum(x, 0),
    'Erf': lambda a, x: ERF(x), 'Equal': lambda a, x, y: x == y, 'Where': lambda a, c, x, y: np.where(c, x, y),
    'Identity': lambda a, x: x, 'Dropout': lambda a, x, *_: x, 'MatMul': lambda a, x, y: x @ y, 'Gemm': gemm,
    'Cast': lambda a, x: x.astype(TYPES[a['to']]), 'Reshape': reshape, 'Unsqueeze': unsqueeze, 'Slice': slice_,
    'Transpose': lambda a, x: x.transpose(a.get('perm')), 'Shape': lambda a, x: np.array(x.shape, np.int64),
    'Concat': lambda a, *x: np.concatenate(x, a['axis']), 'Softmax': softmax, 'LayerNormalization': layer_norm,
    'Gather': lambda a, x, i: np.take(x, i, a.get('axis', 0)), 'Expand': lambda a, x, s: x * np.ones(s, x.dtype),
    'Flatten': lambda a, x: x.reshape(int(np.prod(x.shape[:a.get('axis', 1)])), -1),
    'ReduceMean': lambda a, x: x.mean(tuple(a['axes']), keepdims=bool(a.get('keepdims', 1))),
    'ConstantOfShape': lambda a, s: np.full(s, a['value'].ravel()[0]),
    'Constant': lambda a: a['value'],
}


def run(model, feed):
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for port in model.graph.input:
        assert feed[port.name].dtype == TYPES[port.type.tensor_type.elem_type], port.name
        values[port.name] = feed[port.name]
    for node in model.graph.node:
        attributes = {}
        for a in node.attribute:
            value = onnx.helper.get_attribute_value(a)
            attributes[a.name] = numpy_helper.to_array(value) if a.name == 'value' else value
        made = OPERATORS[node.op_type](attributes, *[values[i] for i in node.input if i])
        values[node.output[0]] = typed(np.asarray(made))
    return [values[port.name] for port in model.graph.output]


def border(model):
    def text(port):
        kind = port.type.tensor_type
        return port.name, kind.elem_type, [d.dim_param or d.dim_value for d in kind.shape.dim]
    stored = {t.name for t in model.graph.initializer}
    return [text(p) for p in model.graph.input if p.name not in stored], [text(p) for p in model.graph.output]


def feed_of(model, path):
    """The expectation's examples, cut into the file's inputs."""
    with open(path, 'rb') as file:
        n, width = struct.unpack('<2i', file.read(24)[:8])
        x = np.frombuffer(file.read(4 * n * width), '<f4').reshape(n, width)
    feed, first = {}, 0
    for name, kind, shape in border(model)[0]:
        n_elements = int(np.prod(shape[1:]))
        feed[name] = x[:, first:first + n_elements].astype(TYPES[kind]).reshape(n, *shape[1:])
        first += n_elements
    assert first == width
    return feed


def main():
    check, golden, work = sys.argv[1:]
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    for name in NETWORKS:
        for kind in ('onnx', 'expect'):
            shutil.copy(os.path.join(golden, '%s.%s' % (name, kind)), work)
    subprocess.run([check, work], check=True, stdout=subprocess.DEVNULL)
    for name in NETWORKS:
        before = onnx.load(os.path.join(work, name + '.onnx'))
        after = onnx.load(os.path.join(work, name + '.ours.onnx'))
        onnx.checker.check_model(after, full_check=True)
        assert border(after) == border(before), '%s: %s, was %s' % (name, border(after), border(before))
        feed = feed_of(before, os.path.join(work, name + '.expect'))
        fresh = run(before, feed)[0]
        trained = {t.name: t for t in after.graph.initializer}
        for tensor in before.graph.initializer:
            if tensor.name in trained:
                value = numpy_helper.to_array(trained[tensor.name])
                old = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(value if value.shape == old.shape else value.T, tensor.name))
        wanted = run(before, feed)[0]
        answers = {'the evaluator': run(after, feed)[0]}
        try:
            from onnx.reference import ReferenceEvaluator
            answers['onnx.reference'] = ReferenceEvaluator(after).run(None, feed)[0]
        except ImportError:
            pass
        assert np.abs(wanted - fresh).max() > 1e-3, '%s: training has changed nothing' % name
        for runner, answer in answers.items():
            off = np.abs(answer - wanted).max() / np.abs(wanted).max()
            assert answer.dtype == np.float32 and off < 1e-5, '%s: %s is off by %g' % (name, runner, off)
            print('%s: %s, off by %.2g with %s' % (name, border(after)[0], off, runner))


main()
