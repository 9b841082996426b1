"""A network as tf2onnx puts down one of TensorFlow: images as (N, H, W, C), scaled and shifted as they come, transposed before what is
done along channels and back after it, flattened in that order (make_onnx.py). PyTorch computes the same."""
import os

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx_export import expect


class Classifier(nn.Module):
    """(N, 9, 7, 3): convolution, batch norm, a depthwise one with the windows of SAME, a gate, a joint of two, dense."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, 2, bias=False), nn.BatchNorm2d(4, 1e-3, 0.01)
        self.deep, self.gate = nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(96, 3)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2) * 2.0 - torch.tensor([0.5, 0.25, 1.0], dtype=x.dtype).view(1, 3, 1, 1)
        x = F.relu6(self.bn(self.conv(x)))
        y = self.deep(F.pad(x, (1, 1, 1, 1)))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return self.fc(torch.cat([x, y], 1).permute(0, 2, 3, 1).flatten(1))


def write(model, path):
    node = helper.make_node
    state = {name: value.detach().numpy() for name, value in model.state_dict().items() if value.dim() > 0}
    stored = [numpy_helper.from_array(value, name) for name, value in state.items() if name != 'fc.weight']
    stored += [numpy_helper.from_array(np.ascontiguousarray(state['fc.weight'].T), 'fc.weight')]
    shift = np.array([0.5, 0.25, 1.0], np.float32).reshape(1, 1, 1, 3)
    stored += [numpy_helper.from_array(value, name) for name, value in [
        ('const/flat', np.array([-1, 96])), ('const/low', np.float32(0)), ('const/high', np.float32(6)),
        ('const/pads', np.array([0, 0, 1, 1, 0, 0, 1, 1])), ('const/zero', np.float32(0))]]  # fmt: skip
    nodes = [
        node('Constant', [], ['const/scale'], value=numpy_helper.from_array(np.float32(2))),
        node('Constant', [], ['const/shift'], value=numpy_helper.from_array(shift)),
        node('Mul', ['x', 'const/scale'], ['scaled'], name='rescaling/mul'),
        node('Sub', ['scaled', 'const/shift'], ['shifted'], name='rescaling/sub'),
        node('Transpose', ['shifted'], ['channels'], name='conv/Conv2D__6', perm=[0, 3, 1, 2]),
        node('Conv', ['channels', 'conv.weight'], ['conv/Conv2D'], name='conv/Conv2D', strides=[2, 2], kernel_shape=[3, 3]),
        node('BatchNormalization', ['conv/Conv2D', 'bn.weight', 'bn.bias', 'bn.running_mean', 'bn.running_var'], ['bn/FusedBatchNormV3'],
             name='bn/FusedBatchNormV3', epsilon=1e-3, momentum=0.99),
        node('Clip', ['bn/FusedBatchNormV3', 'const/low', 'const/high'], ['Relu6'], name='Relu6'),
        node('Transpose', ['Relu6'], ['rows'], name='Relu6__9', perm=[0, 2, 3, 1]),
        node('Transpose', ['rows'], ['columns'], name='depthwise__10', perm=[0, 3, 1, 2]),
        node('Pad', ['columns', 'const/pads', 'const/zero'], ['padded'], name='depthwise/pad'),
        node('Conv', ['padded', 'deep.weight', 'deep.bias'], ['depthwise'], name='depthwise', group=4, kernel_shape=[3, 3]),
        node('ReduceMean', ['depthwise'], ['squeeze'], name='squeeze', axes=[2, 3], keepdims=1),
        node('Conv', ['squeeze', 'gate.weight', 'gate.bias'], ['excite'], name='excite', kernel_shape=[1, 1]),
        node('Sigmoid', ['excite'], ['gate'], name='gate'),
        node('Mul', ['depthwise', 'gate'], ['gated'], name='gated'),
        node('Transpose', ['gated'], ['gated_rows'], name='gated__20', perm=[0, 2, 3, 1]),
        node('Concat', ['rows', 'gated_rows'], ['joined'], name='concat', axis=3),
        node('Reshape', ['joined', 'const/flat'], ['flat'], name='flatten/Reshape'),
        node('MatMul', ['flat', 'fc.weight'], ['dense/MatMul'], name='dense/MatMul'),
        node('Add', ['dense/MatMul', 'fc.bias'], ['y'], name='dense/BiasAdd'),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, 'tf2onnx', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('unk__21', 9, 7, 3))],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, ('unk__22', 3))], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 15)])
    made.ir_version = 8
    onnx.save(made, path)
    return list(state)


def make_tensorflow(folder):
    torch.manual_seed(21)
    model, path = Classifier(), os.path.join(folder, 'tensorflow')
    names = write(model, path + '.onnx')
    expect(model, (torch.randn(6, 9, 7, 3),), torch.arange(6) % 3, names, path + '.expect', 3, 0.05, constants={'const/shift': 3})
