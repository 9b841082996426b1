"""Stochastic depth, as PyTorch 2 exports torchvision's (a number a sample, compared) and as it was written by hand before
(floor of a number plus the chance), around dense layers."""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def number(name, value):
    return helper.make_node('Constant', [], [name], value=numpy_helper.from_array(np.array(value, np.float32)))


def draw(prefix, value):
    """One uniform number a sample, in the shape (N, 1)."""
    return [
        helper.make_node('Shape', [value], [prefix + '/shape']),
        helper.make_node('Constant', [], [prefix + '/at'], value=numpy_helper.from_array(np.array([0], np.int64))),
        helper.make_node('Gather', [prefix + '/shape', prefix + '/at'], [prefix + '/n'], axis=0),
        helper.make_node('Constant', [], [prefix + '/one'], value=numpy_helper.from_array(np.array([1], np.int64))),
        helper.make_node('Concat', [prefix + '/n', prefix + '/one'], [prefix + '/sizes'], axis=0),
        helper.make_node('ConstantOfShape', [prefix + '/sizes'], [prefix + '/zeros'],
                         value=numpy_helper.from_array(np.array([0], np.float32))),
        helper.make_node('RandomUniformLike', [prefix + '/zeros'], [prefix + '/u'], name=prefix + '/draw', dtype=1),
    ]  # fmt: skip


def compared(prefix, value, keep, factor):
    """keep: what the number is compared with; factor: what the result is divided by."""
    return [
        *draw(prefix, value),
        number(prefix + '/keep', keep),
        helper.make_node('Less', [prefix + '/u', prefix + '/keep'], [prefix + '/less'], name=prefix + '/compare'),
        helper.make_node('Cast', [prefix + '/less'], [prefix + '/cast'], name=prefix + '/cast', to=1),
        number(prefix + '/factor', factor),
        helper.make_node('Div', [prefix + '/cast', prefix + '/factor'], [prefix + '/kept'], name=prefix + '/divide'),
        helper.make_node('Mul', [value, prefix + '/kept'], [prefix], name=prefix),
    ]


def floored(prefix, value, keep):
    return [
        *draw(prefix, value),
        number(prefix + '/keep', keep),
        helper.make_node('Add', [prefix + '/keep', prefix + '/u'], [prefix + '/sum'], name=prefix + '/add'),
        helper.make_node('Floor', [prefix + '/sum'], [prefix + '/kept'], name=prefix + '/floor'),
        helper.make_node('Div', [value, prefix + '/keep'], [prefix + '/divided'], name=prefix + '/divide'),
        helper.make_node('Mul', [prefix + '/divided', prefix + '/kept'], [prefix], name=prefix),
    ]


def make_depth(folder):
    def dense(name, x, y):
        return helper.make_node('Gemm', [x, name + '.weight', name + '.bias'], [y], name=name)

    def save(nodes, name):
        weights = [numpy_helper.from_array(np.linspace(-0.5, 0.75, n * 4, dtype=np.float32).reshape(4, n), layer + '.weight')
                   for layer, n in (('first', 4), ('second', 4), ('fc', 3))]  # fmt: skip
        weights += [numpy_helper.from_array(np.full(n, 0.125, np.float32), layer + '.bias')
                    for layer, n in (('first', 4), ('second', 4), ('fc', 3))]  # fmt: skip
        graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('N', 4))],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, ('N', 3))], weights)  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
        made.ir_version = 8
        onnx.checker.check_model(made, full_check=True)
        onnx.save(made, os.path.join(folder, name))

    def around(drop_first, drop_second):
        return [
            dense('first', 'x', 'a'), *drop_first,
            helper.make_node('Add', ['x', 'depth1'], ['b'], name='add1'),
            dense('second', 'b', 'c'), *drop_second,
            helper.make_node('Add', ['b', 'depth2'], ['d'], name='add2'),
            dense('fc', 'd', 'y'),
        ]  # fmt: skip

    save(around(compared('depth1', 'a', 0.75, 0.75), floored('depth2', 'c', 0.5)), 'depth.onnx')
    save(around(compared('depth1', 'a', 0.75, 1.0), floored('depth2', 'c', 0.5)), 'depth_unscaled.onnx')
