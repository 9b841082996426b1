#!/usr/bin/python3
"""Makes the ONNX files under tests/golden/onnx.

Needs python3-torch and python3-onnx (1.12 is what Debian 12 has). The files are committed: users and
the tests do not run this. Every weight is a formula of its name and position, so that the tests know
what must be read: element i of a parameter whose name has L characters is
((7 i + 13 L) mod 101 - 50) / 64. (Not those of onnx_nets.py, which come with what PyTorch makes of
them.)

make_onnx.py --nets FOLDER [NAME...] makes instead what is too large to be committed: torchvision's
networks and BERT-small.
"""
import os
import sys

import numpy as np
import onnx
import torch
import torch.nn as nn
import onnx_ages
import onnx_depth
import onnx_masks
import onnx_places
import onnx_tensorflow
import onnx_stored
import onnx_windows
import onnx_nets
from onnx import TensorProto, helper, numpy_helper

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'onnx')


def formula(name, shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (((7 * i + 13 * len(name)) % 101 - 50) / 64).astype(np.float32).reshape(shape)


# --- exports of PyTorch ---


class Tiny(nn.Module):
    """Most operators once; flattens with torch.flatten."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.dw = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4, bias=False)
        self.dw_bn = nn.BatchNorm2d(4)
        self.left = nn.Conv2d(4, 4, 1)
        self.right = nn.Conv2d(4, 4, 1)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn(self.conv(x))))
        x = nn.functional.relu6(self.dw_bn(self.dw(x)))
        x = x + self.left(x)
        x = torch.cat([x, self.right(x)], 1)
        x = nn.functional.adaptive_avg_pool2d(x, 1)
        return self.fc(self.drop(torch.flatten(x, 1)))


class View(nn.Module):
    """Flattens the old way, which exporters write out as arithmetic of shapes; no bias at the end."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc = nn.Linear(2 * 4 * 4, 3, bias=False)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.fc(x.view(x.size(0), -1))


def export(model, shape, name, opset):
    torch.onnx.export(model, torch.zeros(shape), os.path.join(OUT, name), opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=['x'], output_names=['y'],
                      dynamic_axes={'x': {0: 'N'}, 'y': {0: 'N'}})
    # Where in which source file a node was made is of no use here, and names this machine's paths.
    made = onnx.load(os.path.join(OUT, name))
    for node in made.graph.node:
        node.doc_string = ''
    # Exporting runs the network once, which moves the running statistics: set all values here.
    for tensor in made.graph.initializer:
        tensor.CopyFrom(stored(tensor.name, tuple(tensor.dims)))
    onnx.save(made, os.path.join(OUT, name))


# --- files made by hand, one trap each ---


def stored(name, shape):
    return numpy_helper.from_array(formula(name, shape), name)


def model(nodes, initializers, in_shape=('N', 4), out_shape=('N', 3), opset=17, **kwargs):
    graph = helper.make_graph(
        nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, in_shape)],
        [helper.make_tensor_value_info('y', TensorProto.FLOAT, out_shape)], initializers, **kwargs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)])
    made.ir_version = 8
    return made


def save(made, name):
    with open(os.path.join(OUT, name), 'wb') as file:
        file.write(made if isinstance(made, bytes) else made.SerializeToString())


def gemm(**attributes):
    return helper.make_node('Gemm', ['x', 'w', 'b'], ['y'], name='fc', **attributes)


def constant(name, array):
    return helper.make_node('Constant', [], [name], value=numpy_helper.from_array(np.array(array)))


def make_accepted():
    b = stored('b', (3,))
    save(model([gemm(transB=1)], [stored('w', (3, 4)), b]), 'trans_b1.onnx')
    save(model([gemm()], [stored('w', (4, 3)), b]), 'trans_b0.onnx')
    # A batch of one, as shapes say it.
    save(model([constant('square', np.array([1, 2, 2])), helper.make_node('Reshape', ['x', 'square'], ['s'], name='square'),
                constant('row', np.array([1, -1])), helper.make_node('Reshape', ['s', 'row'], ['h'], name='row'),
                helper.make_node('Gemm', ['h', 'w', 'b'], ['y'], transB=1, name='fc')], [stored('w', (3, 4)), b],
               in_shape=(1, 4), out_shape=(1, 3)), 'one_batch.onnx')
    # Equal contents stored once are not one weight.
    save(model([helper.make_node('Identity', ['b'], ['b2']),
                helper.make_node('Gemm', ['x', 'w', 'b'], ['h'], transB=1, name='fc1'),
                helper.make_node('Gemm', ['h', 'w2', 'b2'], ['y'], transB=1, name='fc2')],
               [stored('w', (3, 4)), stored('w2', (3, 3)), b]), 'identity.onnx')
    # Nodes that do nothing, values of constants given in several ways, a node that leads nowhere.
    save(model([constant('zero', np.float32(0)), constant('no', False),
                helper.make_node('Identity', ['x'], ['x1']),
                helper.make_node('Cast', ['x1'], ['x2'], to=TensorProto.FLOAT),
                constant('pads', np.zeros(4, np.int64)),
                helper.make_node('Pad', ['x2', 'pads'], ['x3'], mode='constant'),
                helper.make_node('Dropout', ['x3', 'zero', 'no'], ['x4', '']),
                helper.make_node('Constant', [], ['shape'], value_ints=[0, 4]),
                helper.make_node('Reshape', ['x4', 'shape'], ['x5']),
                helper.make_node('LSTM', ['x5', 'w', 'w'], ['nowhere'], hidden_size=3),
                helper.make_node('Gemm', ['x5', 'w', 'b'], ['h'], transB=1, name='fc'),
                helper.make_node('Clip', ['h', '', 'six'], ['y'], name='clip')],
               [stored('w', (3, 4)), b,
                helper.make_tensor('six', TensorProto.FLOAT, [], [6.0])]), 'nothing.onnx')
    # A factor that is given, and the one that ONNX has for a node without it.
    save(model([helper.make_node('Gemm', ['x', 'w', 'b'], ['h'], transB=1, name='fc1'),
                helper.make_node('LeakyRelu', ['h'], ['h2'], name='given', alpha=0.25),
                helper.make_node('Gemm', ['h2', 'w2', 'b2'], ['h3'], transB=1, name='fc2'),
                helper.make_node('LeakyRelu', ['h3'], ['y'], name='default')],
               [stored('w', (3, 4)), stored('w2', (3, 3)), b, stored('b2', (3,))]), 'leaky.onnx')
    make_functions()
    # Weights as packed float_data; initialisers that are also inputs, as old files have them.
    made = model([gemm(transB=1)], [
        helper.make_tensor('w', TensorProto.FLOAT, (3, 4), formula('w', (12,)).tolist()), b])
    made.graph.input.append(helper.make_tensor_value_info('w', TensorProto.FLOAT, (3, 4)))
    save(made, 'float_data.onnx')
    # Weights beside the model.
    made = model([gemm(transB=1)], [stored('w', (3, 4)), b])
    data = b'-' * 64
    for tensor in made.graph.initializer:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (('location', 'external.bin'), ('offset', len(data)),
                           ('length', len(tensor.raw_data))):
            tensor.external_data.add(key=key, value=str(value))
        data += tensor.raw_data
        tensor.ClearField('raw_data')
    save(made, 'external.onnx')
    save(data, 'external.bin')
    # The same from 3 GiB on of a file that a test writes.
    for tensor in made.graph.initializer:
        entries = {entry.key: entry for entry in tensor.external_data}
        entries['location'].value = 'far.bin'
        entries['offset'].value = str((3 << 30) + int(entries['offset'].value))
    save(made, 'far.onnx')


def make_functions():
    """Functions of one element in the forms that exporters write; each after a layer of its own."""
    node, sixth = helper.make_node, float(np.float32(1 / 6))
    forms = [('sigmoid', lambda x, y: [node('Sigmoid', [x], [y], name='sigmoid')]),
             ('hard_sigmoid', lambda x, y: [node('HardSigmoid', [x], [y], name='hard_sigmoid')]),
             ('hard_sigmoid_given',
              lambda x, y: [node('HardSigmoid', [x], [y], name='hard_sigmoid_given', alpha=0.25, beta=0.75)]),
             ('hard_swish', lambda x, y: [node('HardSwish', [x], [y], name='hard_swish')]),
             ('silu', lambda x, y: [node('Sigmoid', [x], [y + '/s']), node('Mul', [x, y + '/s'], [y], name='silu')]),
             ('silu_turned', lambda x, y: [node('Sigmoid', [x], [y + '/s']),
                                           node('Mul', [y + '/s', x], [y], name='silu_turned')]),
             # opset 13 has no HardSwish
             ('hard_swish_13', lambda x, y: [node('HardSigmoid', [x], [y + '/s'], alpha=sixth),
                                             node('Mul', [x, y + '/s'], [y], name='hard_swish_13')]),
             ('elu', lambda x, y: [node('Elu', [x], [y], name='elu')]),
             ('elu_given', lambda x, y: [node('Elu', [x], [y], name='elu_given', alpha=0.5)]),
             ('selu', lambda x, y: [node('Selu', [x], [y], name='selu')]),
             ('selu_given', lambda x, y: [node('Selu', [x], [y], name='selu_given', alpha=1.5, gamma=2.0)]),
             ('celu', lambda x, y: [node('Celu', [x], [y], name='celu')]),
             ('softplus', lambda x, y: [node('Softplus', [x], [y], name='softplus')]),
             ('softsign', lambda x, y: [node('Softsign', [x], [y], name='softsign')]),
             ('mish', lambda x, y: [node('Softplus', [x], [y + '/s']), node('Tanh', [y + '/s'], [y + '/t']),
                                    node('Mul', [x, y + '/t'], [y], name='mish')]),
             ('abs', lambda x, y: [node('Abs', [x], [y], name='abs')]),
             ('exp', lambda x, y: [node('Exp', [x], [y], name='exp')]),
             ('log', lambda x, y: [node('Log', [x], [y], name='log')]),
             ('sin', lambda x, y: [node('Sin', [x], [y], name='sin')]),
             ('cos', lambda x, y: [node('Cos', [x], [y], name='cos')]),
             ('threshold', lambda x, y: [node('ThresholdedRelu', [x], [y], name='threshold')]),
             ('negative', lambda x, y: [node('Neg', [x], [y], name='negative')]),
             ('inverse', lambda x, y: [node('Reciprocal', [x], [y], name='inverse')]),
             ('power', lambda x, y: [constant(y + '/e', np.float32(2.3)), node('Pow', [x, y + '/e'], [y], name='power')]),
             ('least', lambda x, y: [constant(y + '/c', np.float32(-0.5)), node('Max', [y + '/c', x], [y], name='least')]),
             ('most', lambda x, y: [constant(y + '/c', np.float32(0.5)), node('Min', [x, y + '/c'], [y], name='most')]),
             ('two_to', lambda x, y: [constant(y + '/n', np.float32(0.5)), node('Reciprocal', [y + '/n'], [y + '/c']),
                                      node('Pow', [y + '/c', x], [y], name='two_to')]),
             # as opsets before 14 write them
             ('hard_swish_10', lambda x, y: [
                 constant(y + '/3', np.float32(3)), constant(y + '/6', np.float32(6)), constant(y + '/0', np.float32(0)),
                 node('Add', [x, y + '/3'], [y + '/s']), node('Clip', [y + '/s', y + '/0', y + '/6'], [y + '/c']),
                 node('Mul', [x, y + '/c'], [y + '/p']), node('Div', [y + '/p', y + '/6'], [y], name='hard_swish_10')]),
             ('hard_sigmoid_10', lambda x, y: [
                 constant(y + '/3', np.float32(3)), constant(y + '/6', np.float32(6)), constant(y + '/0', np.float32(0)),
                 node('Add', [x, y + '/3'], [y + '/s']), node('Clip', [y + '/s', y + '/0', y + '/6'], [y + '/c']),
                 node('Div', [y + '/c', y + '/6'], [y], name='hard_sigmoid_10')]),
             # with ReLU6 as a ReLU and its upper bound
             ('hard_swish_relu6', lambda x, y: [
                 constant(y + '/3', np.float32(3)), constant(y + '/6', np.float32(6)), constant(y + '/0', np.float32(0)),
                 node('Add', [x, y + '/3'], [y + '/s']), node('Relu', [y + '/s'], [y + '/r']),
                 node('Clip', [y + '/r', y + '/0', y + '/6'], [y + '/c']),
                 node('Mul', [x, y + '/c'], [y + '/p']), node('Div', [y + '/p', y + '/6'], [y], name='hard_swish_relu6')]),
             ('hard_gate_relu6', lambda x, y: [
                 constant(y + '/3', np.float32(3)), constant(y + '/6', np.float32(6)), constant(y + '/0', np.float32(0)),
                 node('Add', [x, y + '/3'], [y + '/s']), node('Relu', [y + '/s'], [y + '/r']),
                 node('Clip', [y + '/r', y + '/0', y + '/6'], [y + '/c']),
                 node('Div', [y + '/c', y + '/6'], [y + '/g']), node('Mul', [x, y + '/g'], [y], name='hard_gate_relu6')]),
             # bounds that leave nothing between them stay two nodes
             ('apart', lambda x, y: [constant(y + '/a', np.float32(-2)), constant(y + '/b', np.float32(-1)),
                                     node('Relu', [x], [y + '/r'], name='within'),
                                     node('Clip', [y + '/r', y + '/a', y + '/b'], [y], name='apart')]),
             # its sigmoid has another reader: two nodes
             ('shared', lambda x, y: [node('Sigmoid', [x], [y + '/s'], name='gate'),
                                      node('Mul', [x, y + '/s'], [y + '/p'], name='product'),
                                      node('Add', [y + '/s', y + '/p'], [y], name='shared')])]
    nodes, stored_tensors, x = [], [stored('b', (4,))], 'x'
    for i, (name, make_nodes) in enumerate(forms):
        nodes.append(node('Gemm', [x, 'w%d' % i, 'b'], ['h%d' % i], transB=1, name='fc%d' % i))
        stored_tensors.append(stored('w%d' % i, (4, 4)))
        x = 'y%d' % i if i + 1 < len(forms) else 'y'
        nodes += make_nodes('h%d' % i, x)
    save(model(nodes, stored_tensors, out_shape=('N', 4)), 'functions.onnx')
    # An exponent for each column is no function of one element.
    save(model([node('Pow', ['x', 'e'], ['p'], name='powers'), node('Gemm', ['p', 'w', 'b'], ['y'], transB=1, name='fc')],
               [stored('e', (4,)), stored('w', (3, 4)), stored('b', (3,))]), 'powers.onnx')
    # PReLU: of an image with its slopes behind an Unsqueeze, stored as (C, 1, 1), one for all; of rows.
    axes = [constant('axes', np.array([1, 2]))]
    save(model(axes + [node('Unsqueeze', ['s', 'axes'], ['s3']), node('PRelu', ['x', 's3'], ['a'], name='spread'),
                       node('PRelu', ['a', 't'], ['c'], name='stored'), node('PRelu', ['c', 'one'], ['d'], name='one'),
                       node('Flatten', ['d'], ['f']), node('PRelu', ['f', 'r'], ['g'], name='row'),
                       node('Gemm', ['g', 'w', 'b'], ['y'], transB=1, name='fc')],
               [stored('s', (4,)), stored('t', (4, 1, 1)), stored('one', (1,)), stored('r', (36,)), stored('w', (3, 36)),
                stored('b', (3,))], in_shape=('N', 4, 3, 3)), 'prelu.onnx')
    save(model([node('PRelu', ['x', 's'], ['a'], name='wide'), node('Flatten', ['a'], ['f']),
                node('Gemm', ['f', 'w', 'b'], ['y'], transB=1, name='fc')],
               [stored('s', (4, 3, 1)), stored('w', (3, 36)), stored('b', (3,))], in_shape=('N', 4, 3, 3)),
         'prelu_wide.onnx')
    save(model([node('Mish', ['x'], ['m'], name='mish'), node('Gemm', ['m', 'w', 'b'], ['y'], transB=1, name='fc')],
               [stored('w', (3, 4)), stored('b', (3,))], opset=18), 'mish18.onnx')


# One matrix, and one bias, of two layers that read it one way and the other.
def make_shared():
    save(model([helper.make_node('Gemm', ['x', 'w', 'b'], ['h'], transB=1, name='fc1'),
                helper.make_node('Gemm', ['h', 'w', 'b'], ['y'], transB=0, name='fc2')],
               [stored('w', (4, 4)), stored('b', (4,))], out_shape=('N', 4)), 'shared.onnx')


def make_disorder():
    """Nodes in no order, as keras2onnx lists them; and two that read each other."""
    w, b = [stored('w', (3, 4)), stored('w2', (3, 3))], [stored('b', (3,)), stored('b2', (3,))]
    nodes = [helper.make_node('Gemm', ['r', 'w2', 'b2'], ['y'], name='fc2', transB=1),
             helper.make_node('Relu', ['h'], ['r'], name='relu'),
             helper.make_node('Gemm', ['x', 'w', 'b'], ['h'], name='fc1', transB=1)]
    save(model(nodes, w + b), 'disorder.onnx')
    nodes[2].input[0] = 'again'
    nodes.append(helper.make_node('Identity', ['r'], ['again'], name='back'))
    save(model(nodes, w + b), 'cycle.onnx')


def make_refused():
    w, b = stored('w', (3, 4)), stored('b', (3,))
    save(model([gemm(transB=1)], [w, b], opset=8), 'opset8.onnx')
    save(model([gemm(transB=1)], [w, b], opset=22), 'opset22.onnx')
    save(model([gemm(transB=1)], [w, b], in_shape=('N', 'F')), 'dynamic.onnx')
    save(model([gemm(transB=1)], [w, b], in_shape=('N', 2, 2)), 'rank.onnx')
    save(model([gemm(transB=1)], [w]), 'undefined.onnx')
    save(model([gemm(transB=1, fancy=3)], [w, b]), 'attribute.onnx')
    save(model([gemm(transB=1), gemm(transB=1)], [w, b]), 'twice.onnx')
    made = model([helper.make_node('Gemm', ['x', 'w', 'b'], ['h'], transB=0, name='fc1'),
                  helper.make_node('Gather', ['w', 'ids'], ['rows'], axis=0, name='table'),
                  helper.make_node('ReduceMean', ['rows'], ['row'], axes=[1], keepdims=0, name='mean'),
                  helper.make_node('Add', ['h', 'row'], ['y'], name='sum')],
                 [stored('w', (4, 3)), stored('b', (3,))])
    made.graph.input.append(helper.make_tensor_value_info('ids', TensorProto.INT64, ('N', 2)))
    save(made, 'shared_table.onnx')
    made = model([gemm(transB=1)], [w, b])
    helper.set_model_props(made, {'dunlin.trained': 'w\ngone'})
    save(made, 'unknown_name.onnx')
    # A table that is only added, without a word on what it is: a warning.
    save(model([helper.make_node('Add', ['x', 'pe'], ['h'], name='add'),
                helper.make_node('Gemm', ['h', 'w', 'b'], ['y'], name='fc', transB=1)], [w, b, stored('pe', (1, 4))]),
         'doubtful.onnx')
    save(model([gemm(transB=1)], [
        numpy_helper.from_array(formula('w', (3, 4)).astype(np.float16), 'w'), b]), 'half.onnx')
    save(model([gemm(transB=1)], [stored('w', (3, 5)), b]), 'shape.onnx')
    # A group norm written out that does not end as one; newer forms that cannot be trained.
    image = dict(in_shape=('N', 4, 3, 3), out_shape=('N', 36))
    rows = [stored('s', (4,)), stored('t', (4,))]
    flat = [helper.make_node('Flatten', ['n'], ['y'], name='flat')]
    groups = [constant('shape', np.array([0, 2, -1])), helper.make_node('Reshape', ['x', 'shape'], ['g'], name='g')]
    for name, factor in (('broken', 1), ('scaled', 1.5)):
        ends = ['c', 'n'] if name == 'broken' else ['n']
        norm = [constant('ones', np.full(2, factor, np.float32)), constant('zeros', np.zeros(2, np.float32)),
                helper.make_node('InstanceNormalization', ['g', 'ones', 'zeros'], ends[:1], name='norm')]
        norm += [helper.make_node('Relu', ends[:1], ends[1:], name='relu')] if name == 'broken' else []
        save(model(groups + norm + flat, rows, **image), 'norm_%s.onnx' % name)
    for opset in (18, 21):
        save(model([helper.make_node('GroupNormalization', ['x', 's', 't'], ['n'], name='norm', num_groups=2)] + flat,
                   rows, opset=opset, **image), 'norm_opset%d.onnx' % opset)
    for name, sizes in (('split_less', [1, 2]), ('split_more', [3, 2]), ('split_count', [4])):
        save(model([constant('sizes', np.array(sizes)), helper.make_node('Split', ['x', 'sizes'], ['l', 'r'], name='split',
                                                                         axis=1),
                    helper.make_node('Gemm', ['r', 'w', 'b'], ['y'], name='fc', transB=1)], [stored('w', (3, 2)), b]),
             name + '.onnx')
    save(model([constant('axes', np.array([0])), helper.make_node('ReduceMean', ['x', 'axes'], ['y'], name='mean')], [],
               opset=18), 'mean_batch.onnx')
    # Another number of samples than the file is for.
    save(model([constant('flat', np.array([1, -1])), helper.make_node('Reshape', ['x', 'flat'], ['h'], name='flat'),
                helper.make_node('Gemm', ['h', 'w', 'b'], ['y'], name='fc', transB=1)], [stored('w', (3, 8)), b],
               in_shape=(2, 4), out_shape=(1, 3)), 'other_batch.onnx')
    # A sum of weights alone; a count that is no count, and would be one in 32 bits.
    save(model([helper.make_node('Add', ['w', 'v'], ['sum'], name='add'),
                helper.make_node('Gemm', ['x', 'sum', 'b'], ['y'], name='fc', transB=1)], [w, stored('v', (3, 4)), b]),
         'weights_added.onnx')
    save(model([constant('count', np.array([9 - (1 << 32)])), helper.make_node('ConstantOfShape', ['count'], ['sizes'], name='fill'),
                helper.make_node('Reshape', ['x', 'sizes'], ['h'], name='shape'),
                helper.make_node('Gemm', ['h', 'w', 'b'], ['y'], name='fc', transB=1)], [w, b]), 'below_zero.onnx')
    # Damaged or hostile.
    short = stored('w', (3, 4))
    short.raw_data = short.raw_data[:-1]
    save(model([gemm(transB=1)], [short, b]), 'short.onnx')
    huge = stored('w', (3, 4))
    del huge.dims[:]
    huge.dims.extend([1 << 40, 1 << 40])
    save(model([gemm(transB=1)], [huge, b]), 'huge.onnx')
    negative = stored('w', (3, 4))
    del negative.dims[:]
    negative.dims.extend([-3, -4])
    save(model([gemm(transB=1)], [negative, b]), 'negative.onnx')
    for name, location in (('upwards.onnx', '../external.bin'), ('absolute.onnx', '/etc/passwd'),
                           ('missing.onnx', 'not_there.bin'), ('beyond.onnx', 'external.bin')):
        outside = stored('w', (3, 4))
        outside.ClearField('raw_data')
        outside.data_location = TensorProto.EXTERNAL
        outside.external_data.add(key='location', value=location)
        outside.external_data.add(key='offset', value='1000000')
        save(model([gemm(transB=1)], [outside, b]), name)
    save(model([helper.make_node('Gemm', ['x', 'w', 'b'], ['y' * 300], transB=1)], [w, b]),
         'long_name.onnx')
    save(b'\x08\x08', 'no_graph.onnx')
    save(b'This is not a model at all.\n', 'text.onnx')
    save(b'', 'empty.onnx')


def make_border():
    """Inputs and outputs that an exported file must have again."""
    def info(name, kind, *shape):
        return helper.make_tensor_value_info(name, kind, shape)

    def write(nodes, inputs, output, initializers, name):
        made = helper.make_model(helper.make_graph(nodes, 'g', inputs, [output], initializers),
                                 opset_imports=[helper.make_opsetid('', 17)])
        made.ir_version = 8
        save(made, name)

    node = helper.make_node
    # int32 for a table, floats, one that nothing reads, a weight that is listed; the output by a node that does nothing.
    write([node('Gather', ['table', 'ids'], ['rows']), node('Flatten', ['rows'], ['flat'], axis=1),
           node('Concat', ['flat', 'inputs'], ['both'], axis=1), node('Gemm', ['both', 'w', 'b'], ['z'], transB=1),
           node('Identity', ['z'], ['scores'])],
          [info('ids', TensorProto.INT32, 'batch', 3), info('spare', TensorProto.INT64, 'batch', 'any'),
           info('inputs', TensorProto.FLOAT, 'batch', 4), info('w', TensorProto.FLOAT, 3, 10)],
          info('scores', TensorProto.FLOAT, 'batch', 'classes'),
          [stored('table', (5, 2)), stored('w', (3, 10)), stored('b', (3,))], 'border.onnx')
    # Of the second input the shape alone is read: it is part of an example all the same.
    write([node('Gemm', ['x', 'w', 'b'], ['z'], transB=1), node('Shape', ['mask'], ['all']),
           node('Gather', ['all', 'zero'], ['n'], axis=0), node('Unsqueeze', ['n', 'first'], ['batch']),
           node('Concat', ['batch', 'rest'], ['shape'], axis=0), node('Reshape', ['z', 'shape'], ['y'])],
          [info('x', TensorProto.FLOAT, 'N', 4), info('mask', TensorProto.INT64, 'N', 2)], info('y', TensorProto.FLOAT, 'N', 3),
          [stored('w', (3, 4)), stored('b', (3,)), numpy_helper.from_array(np.array(0), 'zero'),
           numpy_helper.from_array(np.array([0]), 'first'), numpy_helper.from_array(np.array([3]), 'rest')],
          'border_shape.onnx')
    # An image of any size.
    write([node('Conv', ['x', 'cw'], ['c']), node('GlobalAveragePool', ['c'], ['p']), node('Flatten', ['p'], ['f']),
           node('Gemm', ['f', 'w', 'b'], ['y'], transB=1)],
          [info('x', TensorProto.FLOAT, 'N', 2, 'height', 'width')], info('y', TensorProto.FLOAT, 'N', 3),
          [stored('cw', (4, 2, 3, 3)), stored('w', (3, 4)), stored('b', (3,))], 'any_size.onnx')
    # Ids of rank 1 and scores of rank 1: matrix factorisation.
    write([node('Gather', ['users', 'user'], ['u']), node('Gather', ['items', 'item'], ['i']), node('Mul', ['u', 'i'], ['p']),
           node('ReduceMean', ['p'], ['score'], axes=[1], keepdims=0)],
          [info('user', TensorProto.INT64, 'N'), info('item', TensorProto.INT32, 'N')], info('score', TensorProto.FLOAT, 'N'),
          [stored('users', (3, 2)), stored('items', (4, 2))], 'factors.onnx')
    # Whole numbers that are looked up and computed with; the batch is fixed.
    write([node('Cast', ['x'], ['real'], to=TensorProto.FLOAT), node('Gather', ['table', 'x'], ['rows']),
           node('Flatten', ['rows'], ['flat'], axis=1), node('Concat', ['flat', 'real'], ['both'], axis=1),
           node('Gemm', ['both', 'w', 'b'], ['y'], transB=1)],
          [info('x', TensorProto.INT64, 2, 3)], info('y', TensorProto.FLOAT, 2, 3),
          [stored('table', (5, 2)), stored('w', (3, 9)), stored('b', (3,))], 'border_fixed.onnx')


def make_crowded():
    """More kinds of issues than fit on a screen, some of many nodes."""
    h, nodes = 'x', []
    for i in range(30):
        for k in range(12 if i == 0 else 1):
            op, name = ('RoiAlign', 'up%d' % (k + 1)) if i == 0 else ('Odd%d' % i, 'odd%d' % i)
            nodes.append(helper.make_node(op, [h], ['%s_out' % name], name=name))
            h = '%s_out' % name
    nodes.append(helper.make_node('Gemm', [h, 'w', 'b'], ['y'], name='fc', transB=1))
    save(model(nodes, [stored('w', (3, 4)), stored('b', (3,))], opset=8), 'crowded.onnx')
    # Reasons that differ in names and numbers only.
    nodes = [helper.make_node('Gemm', ['x', 'v%d' % i, 'b'], ['g%d' % i], name='fc%d' % i, transB=1) for i in range(3)]
    nodes.append(helper.make_node('Concat', ['g0', 'g1', 'g2'], ['y'], name='cat', axis=1))
    halves = [numpy_helper.from_array(formula('v', (4, 4)).astype(np.float16), 'v%d' % i) for i in range(3)]
    save(model(nodes, halves + [stored('b', (4,))], out_shape=('N', 12)), 'halves.onnx')


def make_many():
    """All that is wrong must be listed at once, and nothing that only follows from it."""
    body = helper.make_graph([], 'body', [], [])
    nodes = [
        helper.make_node('Conv', ['x', 'cw'], ['a'], name='conv', auto_pad='SAME_UPPER'),
        helper.make_node('Hardmax', ['a'], ['b'], name='hardmax'),
        helper.make_node('MaxPool', ['b'], ['c'], name='pool', kernel_shape=[2, 2],
                         dilations=[2, 2]),
        helper.make_node('Flatten', ['c'], ['d'], name='flat', axis=2),
        helper.make_node('Shape', ['d'], ['s']),
        helper.make_node('Constant', [], ['first'],
                         value=numpy_helper.from_array(np.array([0], np.int64))),
        helper.make_node('Gather', ['s', 'first'], ['n']),
        helper.make_node('Reshape', ['d', 'n'], ['d2'], name='reshape'),
        helper.make_node('If', ['d2'], ['e'], name='if', then_branch=body, else_branch=body),
        helper.make_node('Relu', ['e'], ['f'], name='fine'),
        helper.make_node('Gemm', ['f', 'w', 'bias'], ['g'], name='scaled', alpha=0.5, transB=1),
        helper.make_node('Mish', ['g'], ['y'], name='mish', domain='com.example'),
    ]
    save(model(nodes, [stored('cw', (2, 1, 3, 3)), stored('w', (3, 4)), stored('bias', (3,))],
               in_shape=('N', 1, 8, 8), opset=22), 'many.onnx')


def main():
    torch.set_num_threads(1)
    if len(sys.argv) > 2 and sys.argv[1] == '--nets':
        os.makedirs(sys.argv[2], exist_ok=True)
        onnx_nets.make_large(sys.argv[2], sys.argv[3:])
        return
    os.makedirs(OUT, exist_ok=True)
    export(Tiny(), (2, 3, 9, 9), 'train13.onnx', 13)
    export(Tiny(), (2, 3, 9, 9), 'train17.onnx', 17)
    export(View(), (2, 1, 6, 6), 'view13.onnx', 13)
    export(View(), (2, 1, 6, 6), 'view17.onnx', 17)
    make_accepted()
    make_shared()
    make_disorder()
    make_refused()
    make_border()
    make_crowded()
    make_many()
    onnx_nets.make_small(OUT)
    onnx_ages.make_ages(OUT)
    onnx_masks.make_masks(OUT)
    onnx_places.make_places(OUT)
    onnx_stored.make_stored(OUT)
    onnx_windows.make_windows(OUT)
    onnx_tensorflow.make_tensorflow(OUT)
    onnx_depth.make_depth(OUT)


main()
