#!/usr/bin/python3
"""Puts seeds for fuzz_onnx into tests/fuzz/corpus/onnx: copies of golden files that between them have every operator, and
`constants`, whose operators the reader folds and no export of ours has.

Needs python3-onnx. The seeds are committed: users and the tests do not run this.
"""
import pathlib
import shutil

import onnx
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = ('cross_heads', 'pad_causal', 'pad_repeated', 'tensorflow', 'depth', 'end_log_softmax', 'extremes', 'functions', 'mask_bools', 'mask_steps', 'mask_triangle', 'mirrored', 'named_pools',
          'pads_signals', 'prelu', 'reduced', 'shuffle')  # fmt: skip


def constants():
    """A dense layer whose shift comes of a chain of constants: comparisons, logic, remainders and repetition."""
    values = []
    nodes = []

    def given(name, kind, dims, numbers):
        values.append(helper.make_tensor(name, kind, dims, numbers))
        return name

    def node(op, *inputs, **attributes):
        out = '%s_%d' % (op.lower(), len(nodes))
        nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    a = given('a', TensorProto.INT64, [4], [5, -7, 3, 2])
    b = given('b', TensorProto.INT64, [4], [3, 3, 3, -2])
    rest = node('Mod', a, b)
    small = node('LessOrEqual', rest, b)
    large = node('GreaterOrEqual', a, rest)
    both = node('Xor', node('And', small, large), node('Or', small, node('Not', large)))
    picked = node('Where', both, rest, a)
    twice = node('Tile', picked, given('two', TensorProto.INT64, [1], [2]))
    part = node('Slice', twice, given('start', TensorProto.INT64, [1], [7]), given('end', TensorProto.INT64, [1], [0]),
                given('axis', TensorProto.INT64, [1], [0]), given('step', TensorProto.INT64, [1], [-2]))  # fmt: skip
    part = node('ScatterND', part, given('at', TensorProto.INT64, [2, 1], [3, -4]), given('put', TensorProto.INT64, [2], [6, 1]))
    part = node('CumSum', part, given('along', TensorProto.INT64, [], [0]))
    shift = node('Reshape', node('Cast', part, to=TensorProto.FLOAT), given('flat', TensorProto.INT64, [1], [-1]))
    dense = node('Gemm', 'x', given('w', TensorProto.FLOAT, [4, 3], [0.125 * i for i in range(12)]), transB=1)
    w = given('w2', TensorProto.FLOAT, [4, 4], [0.0625 * i for i in range(16)])
    moved = node('Add', node('Gemm', dense, w), shift)
    node('Mean', node('Sum', moved, dense, moved), dense)
    nodes[-1].output[0] = 'y'
    x = helper.make_tensor_value_info('x', TensorProto.FLOAT, ['N', 3])
    y = helper.make_tensor_value_info('y', TensorProto.FLOAT, ['N', 4])
    graph = helper.make_graph(nodes, 'constants', [x], [y], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], producer_name='dunlin')


def main():
    corpus = HERE / 'corpus' / 'onnx'
    for name in GOLDEN:
        shutil.copy(HERE.parent / 'golden' / 'onnx' / (name + '.onnx'), corpus / name)
    model = constants()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(corpus / 'constants'))


if __name__ == '__main__':
    main()
