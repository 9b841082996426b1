"""Networks in files of opsets 9 to 12, and what PyTorch (float64) makes of them (make_onnx.py, onnx_nets.py)."""
import os

import numpy as np
import onnx
import torch
import torch.nn as nn
from onnx import helper, numpy_helper
from onnx_export import expect, export


class Aged(nn.Module):
    """As PyTorch's exporter writes it: batch norm with outputs for training, Clip, shapes computed by hand."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4 * 3 * 3, 6)
        self.head = nn.Linear(6, 3)
        self.end = nn.LogSoftmax(1)

    def before(self, x):
        x = self.pool(nn.functional.relu6(self.bn(self.conv(x))))
        x = nn.functional.hardtanh(self.fc(self.drop(x.reshape(x.size(0), -1))), -0.5, 2.0)
        return self.head(x[:, None].squeeze(1))

    def forward(self, x):
        return self.end(self.before(x))


class Worded(nn.Module):
    """The same as old_nodes() writes in the words of opset 9, 10, 11 or 12."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.fc = nn.Linear(6, 3)

    def before(self, x):
        a, b = x[:, 1:6].split([2, 3], 1)
        x = torch.clamp(self.body(torch.cat([a.mean(1), b.mean(1)], 1)), -0.25, 1.5)
        return self.fc(torch.softmax(x, 1))

    def forward(self, x):
        return torch.softmax(self.before(x), 1)


def old_nodes(opset):
    """What is an attribute up to some opset and an input since; a softmax over all from its axis on."""
    node, nodes = helper.make_node, []

    def add(op, inputs, outputs, since, options, **attributes):
        """`options`: attributes up to opset `since`, then inputs in this order."""
        if opset < since:
            attributes.update({name: value for name, value in options.items() if value is not None})
        else:
            for name, value in options.items():
                kind = np.float32 if isinstance(value, float) else np.int64
                inputs = inputs + ([''] if value is None else ['%s_%s' % (outputs[0], name)])
                if value is not None:
                    nodes.append(node('Constant', [], inputs[-1:], value=numpy_helper.from_array(np.array(value, kind))))
        nodes.append(node(op, inputs, outputs, **attributes))

    add('Pad', ['x'], ['padded'], 11, dict(pads=[0] * 6, value=0.0), mode='constant')
    add('Slice', ['padded'], ['middle'], 10, dict(starts=[1], ends=[-1], axes=[1]))
    add('Unsqueeze', ['middle'], ['more'], 13, dict(axes=[1, 4]))
    add('Squeeze', ['more'], ['fewer'], 13, dict(axes=[1, 4]))
    add('Split', ['fewer'], ['a', 'b'], 13, dict(split=[2, 3]), axis=1)
    for part in ('a', 'b'):
        add('ReduceMean', [part], [part + '_mean'], 18, dict(axes=[1]), keepdims=0)
    add('Concat', ['a_mean', 'b_mean'], ['means'], 1, {}, axis=1)
    add('Gemm', ['means', 'body.weight', 'body.bias'], ['h'], 1, {}, transB=1)
    add('Clip', ['h'], ['low'], 11, dict(min=-0.25))
    add('Clip', ['low'], ['clipped'], 11, dict(min=None, max=1.5))
    add('Dropout', ['clipped'], ['kept', ''], 12, dict(ratio=0.0))
    # Over (3, 2): of all six.
    add('Reshape', ['kept', 'threes'], ['pairs'], 1, {})
    add('Softmax', ['pairs'], ['parts'], 1, {})
    add('Flatten', ['parts'], ['flat'], 1, {})
    add('Gemm', ['flat', 'fc.weight', 'fc.bias'], ['z'], 1, {}, transB=1)
    add('Softmax', ['z'], ['y'], 1, {}, axis=1)
    return nodes


def write_old(model, path, opset):
    weights = [numpy_helper.from_array(value.numpy(), name) for name, value in model.state_dict().items()]
    graph = helper.make_graph(old_nodes(opset), 'g', [helper.make_tensor_value_info('x', 1, ('N', 7, 4))],
                              [helper.make_tensor_value_info('y', 1, ('N', 3))],
                              weights + [numpy_helper.from_array(np.array([-1, 3, 2]), 'threes')])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)])
    made.ir_version = {9: 4, 10: 5, 11: 6, 12: 7}[opset]
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path)
    return [tensor.name for tensor in weights]


def make_ages(folder):
    torch.manual_seed(3)
    for opset in (9, 10, 11, 12):
        path = os.path.join(folder, 'worded%d' % opset)
        model, inputs = Worded(), (torch.randn(4, 7, 4),)
        names = write_old(model, path + '.onnx', opset)
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.5)
    for opset in (9, 11):
        path = os.path.join(folder, 'aged%d' % opset)
        model, inputs = Aged(), (torch.randn(4, 2, 8, 8),)
        model.train()
        names = export(model, inputs, path + '.onnx', opset)
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.05)
