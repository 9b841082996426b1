"""Pooling, response normalisation, extremes, slices and choices as ONNX files (onnx_nets.py)."""
import os

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import helper, numpy_helper
from onnx_export import expect, export, make


class Pools(nn.Module):
    """As the exporter writes them: a choice by a shape and a mean over three axes for the response norm, zeros and a
    mean for the padded average, powers and a mean for the norm of windows."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 5, 3, padding=1)
        self.fc = nn.Linear(5 * 3 * 2, 3)

    def forward(self, x):
        x = F.local_response_norm(self.first(x), 5, 0.5, 0.75, 1.0)
        x = F.max_pool2d(x, 3, 1, padding=1, dilation=2)
        x = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
        x = F.lp_pool2d(torch.tanh(self.second(x)) + 1.5, 2.0, 2, 1)
        return self.fc(x.flatten(1))


class PoolsOfSignals(nn.Module):
    """A response norm of three channels, the largest of 300 numbers, and of 18 x 17 pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 1)
        self.fc = nn.Linear(4 + 3, 3)

    def forward(self, x):
        x = F.local_response_norm(self.first(x), 3, 0.5, 0.75, 2.0)
        y = self.second(x.reshape(-1, 4, 18, 17))
        return self.fc(torch.cat([F.max_pool1d(x, 306).flatten(1), F.adaptive_max_pool2d(y, 1).flatten(1)], 1))


class Extremes(nn.Module):
    """The larger and smaller of values, signs, a choice by a constant mask, slices of several axes with steps."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 1)
        self.fc = nn.Linear(3 * 3 * 3, 3)

    def forward(self, x):
        a, b = self.first(x), self.second(x)
        y = torch.maximum(a, b) - 0.5 * torch.minimum(torch.minimum(a, b * 0.75), x.mean((1, 2, 3), keepdim=True))
        y = y + torch.sign(a) * 0.25
        mask = torch.tensor([[[[True, False, True, True, False, False]]]])
        y = torch.where(mask, y, torch.tanh(y))
        return self.fc(y[:, 1:, ::2, 1::2].flatten(1))


class Named(nn.Module):
    """What ONNX has operators for and PyTorch's exporter does not use."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(4 * 3, 3)
        self.register_parameter('floor', nn.Parameter(torch.full((4, 1, 1), -0.25)))

    def forward(self, x):
        x = F.local_response_norm(self.conv(x), 3, 0.3, 0.75, 1.0)
        three = torch.maximum(torch.maximum(x, self.floor), x.mean((2, 3), keepdim=True))
        norms = F.avg_pool2d(F.pad(three.abs() ** 3, (1, 0, 0, 1)), 3, 2) * 9
        whole = ((three ** 2).sum((2, 3)) + 0.0).sqrt()
        norms = (norms ** (1.0 / 3.0)).mean((2, 3))
        return self.fc(torch.cat([norms, whole, x.amax((2, 3))], 1))


def write_named(model, path):
    node = helper.make_node
    nodes = [node('Conv', ['x', 'conv.weight', 'conv.bias'], ['c']),
             node('LRN', ['c'], ['n'], size=3, alpha=0.3, beta=0.75, bias=1.0),
             node('ReduceMean', ['n'], ['m'], axes=[2, 3]), node('Max', ['n', 'floor', 'm'], ['three']),
             node('LpPool', ['three'], ['p'], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 0], p=3),
             node('ReduceMean', ['p'], ['norms'], axes=[2, 3], keepdims=0),
             node('GlobalLpPool', ['three'], ['w'], p=2), node('Flatten', ['w'], ['whole']),
             node('GlobalMaxPool', ['n'], ['l']), node('Flatten', ['l'], ['largest']),
             node('Concat', ['norms', 'whole', 'largest'], ['all'], axis=1),
             node('Gemm', ['all', 'fc.weight', 'fc.bias'], ['y'], transB=1)]
    weights = [numpy_helper.from_array(value.detach().numpy(), name) for name, value in model.state_dict().items()]
    graph = helper.make_graph(nodes, 'named', [helper.make_tensor_value_info('x', 1, ['N', 2, 8, 7])],
                              [helper.make_tensor_value_info('y', 1, ['N', 3])], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path)
    return [tensor.name for tensor in weights]


def write_choices(folder):
    """A choice by a constant whose other branch is nonsense here; one by a value, which is refused."""
    node = helper.make_node

    def branch(name, *nodes):
        return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(name, 1, None)])

    then = branch('t', node('Relu', ['c'], ['r']), node('Add', ['r', 'c'], ['t']))
    other = branch('e', node('Squeeze', ['c', 'axes'], ['e']))
    cond = numpy_helper.from_array(np.array(True), 'cond')
    axes = numpy_helper.from_array(np.array([1], 'int64'), 'axes')
    weights = [numpy_helper.from_array(value.numpy(), name) for name, value in
               (('w', torch.arange(36.0).reshape(2, 2, 3, 3) / 36), ('fc.w', torch.arange(24.0).reshape(3, 8) / 24))]
    for name, first in (('choice', 'cond'), ('choice_unknown', 'flag')):
        nodes = [node('Conv', ['x', 'w'], ['c'], name='conv'),
                 node('If', [first], ['i'], name='choice', then_branch=then, else_branch=other),
                 node('Flatten', ['i'], ['f']), node('Gemm', ['f', 'fc.w'], ['y'], transB=1)]
        inputs = [helper.make_tensor_value_info('x', 1, ['N', 2, 4, 4])]
        inputs += [helper.make_tensor_value_info('flag', 9, [])] if first == 'flag' else []
        graph = helper.make_graph(nodes, name, inputs, [helper.make_tensor_value_info('y', 1, ['N', 3])], [*weights, cond, axes])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8),
                  os.path.join(folder, name + '.onnx'))


def make_pools(folder):
    torch.manual_seed(10)
    make(Pools(), (torch.randn(4, 2, 8, 7),), 3, folder, 'pools', 17)
    make(PoolsOfSignals(), (torch.randn(3, 2, 306),), 3, folder, 'pools_signals', 17)
    model, inputs = Extremes(), (torch.randn(4, 2, 6, 6),)
    names = export(model.train(), inputs, os.path.join(folder, 'extremes.onnx'), 17)
    expect(model, inputs, torch.arange(4) % 3, names, os.path.join(folder, 'extremes.expect'), 3, 0.05,
           constants={'/Where_output_0/mask': 6, '/Where_output_0/unmask': 6})
    model, inputs = Named(), (torch.randn(4, 2, 8, 7),)
    names = write_named(model, os.path.join(folder, 'named_pools.onnx'))
    expect(model, inputs, torch.arange(4) % 3, names, os.path.join(folder, 'named_pools.expect'), 3, 0.05)
    write_choices(folder)
