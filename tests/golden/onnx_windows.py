"""Windows of an image (Swin), padding masks that are made of ids or given, attention between two sequences, and the layout of TensorFlow's
exports (make_onnx.py)."""
import math
import os

import onnx
import torch
import torch.nn as nn
from onnx import TensorProto, helper, numpy_helper
from onnx_export import expect, export
from torchvision.models.swin_transformer import SwinTransformer


def swin():
    """Two stages, the second window of the first is shifted; 10 x 12 patches are no multiple of the window, so they are padded."""
    return SwinTransformer([2, 2], 8, [2, 1], [2, 2], [4, 4], mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=3)


class Padded(nn.Module):
    """nn.TransformerEncoder whose keys are hidden where the id is 0, or where the second input says so."""

    def __init__(self, is_given=False, is_causal=False, norm_first=False, d=8):
        super().__init__()
        self.is_given, self.is_causal = is_given, is_causal
        self.table, self.fc = nn.Embedding(11, d), nn.Linear(d, 3)
        layer = nn.TransformerEncoderLayer(d, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids, mask=None):
        ahead = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if self.is_causal else None
        return self.fc(self.layers(self.table(ids), ahead, src_key_padding_mask=mask if self.is_given else ids == 0).mean(1))


class Hidden(nn.Module):
    """One layer of attention with the masks of padding that people write. `form`: how it is made and used."""

    def __init__(self, form, d=8, heads=2):
        super().__init__()
        self.form, self.heads, self.table = form, heads, nn.Embedding(11, d)
        self.query, self.key, self.value, self.fc = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 3)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).permute(0, 2, 1, 3)

    def hide(self, scores, ids, mask):
        n, t = ids.shape
        lowest = torch.finfo(torch.float32).min
        if self.form == 'sum':  # (1 - mask) times the lowest float
            return scores + (1.0 - (ids != 0)[:, None, None, :].to(scores.dtype)) * lowest
        if self.form == 'expanded':  # each query its row
            turned = 1.0 - (ids.ne(0) if mask is None else mask)[:, None, None, :].expand(n, 1, t, t).to(scores.dtype)
            return scores + turned.masked_fill(turned.to(torch.bool), lowest)
        if self.form == 'filled':
            return scores.masked_fill((mask == 0).view(n, 1, 1, t).expand_as(scores), float('-inf'))
        if self.form == 'repeated':
            return scores.masked_fill(~(ids > 0).unsqueeze(1).repeat(1, t, 1).unsqueeze(1), -1e9)
        if self.form == 'soft':  # what is added is a choice of two numbers, neither of which hides
            return scores + torch.where((ids <= 3)[:, None, None, :], torch.tensor(-0.7, dtype=scores.dtype), torch.tensor(0.3, dtype=scores.dtype))
        near = ((ids >= 2) & (ids < 9)) | (ids == 0)
        return torch.where(near[:, None, None, :].expand_as(scores), scores, torch.tanh(scores))

    def forward(self, ids, mask=None):
        h = self.table(ids)
        q, k, v = self.split(self.query(h)), self.split(self.key(h)), self.split(self.value(h))
        scores = self.hide(q @ k.transpose(-1, -2) / math.sqrt(4), ids, mask)
        h = h + (torch.softmax(scores, -1) @ v).permute(0, 2, 1, 3).reshape(h.shape)
        return self.fc(h[:, 0])


class Crossed(nn.Module):
    """Attention from one sequence to another: nn.MultiheadAttention, with or without biases, or nn.TransformerDecoder."""

    def __init__(self, form, batch_first=True, d=8):
        super().__init__()
        self.form, self.batch_first = form, batch_first
        self.left, self.right, self.fc = nn.Linear(3, d), nn.Linear(4, d), nn.Linear(d, 3)
        if form == 'decoder':
            self.attention = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 2, 12, dropout=0.0, batch_first=batch_first), 1)
        else:
            self.attention = nn.MultiheadAttention(d, 2, batch_first=batch_first, bias=form != 'unbiased')

    def forward(self, x, z):
        x, z = self.left(x), self.right(z)
        if not self.batch_first:
            x, z = x.transpose(0, 1), z.transpose(0, 1)
        if self.form == 'decoder':
            y = self.attention(x, z, tgt_mask=torch.triu(torch.full((6, 6), float('-inf'), dtype=x.dtype), 1))
        else:
            y = x + self.attention(x, z, torch.tanh(z) if self.form == 'three' else z)[0]
        return self.fc(y.mean(1 if self.batch_first else 0))


class Translator(nn.Module):
    """nn.Transformer: an encoder and a decoder, padding hidden in both."""

    def __init__(self, d=8):
        super().__init__()
        self.source, self.target, self.fc = nn.Embedding(11, d), nn.Embedding(11, d), nn.Linear(d, 3)
        self.layers = nn.Transformer(d, 2, 1, 1, 12, 0.0, batch_first=True)

    def forward(self, source, target):
        pad, t = source == 0, target.shape[1]
        h = self.source(source), self.target(target)
        ahead = torch.triu(torch.full((t, t), float('-inf'), dtype=h[0].dtype), 1)
        return self.fc(self.layers(*h, tgt_mask=ahead, src_key_padding_mask=pad, memory_key_padding_mask=pad)[:, -1])


def no_parameters_of(path):
    """Constants that are a parameter of ours, with their lengths: numbers of rows of a stored table, and masks that are stored."""
    made, file = {}, onnx.load(path)
    shapes = {tensor.name: tensor.dims for tensor in file.graph.initializer}
    for node in file.graph.node:
        if node.op_type == 'Gather' and node.input[1] in shapes and len(shapes[node.input[1]]) > 0:
            made[node.output[0] + '/order'] = int(torch.tensor(list(shapes[node.input[1]])).prod())
    return made


def spread(model):
    """Biases and scales of norms that are not all alike."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 or parameter.abs().max() < 0.1:
                parameter.add_(0.1 * torch.randn(parameter.shape))


def make_one(folder, name, model, inputs, opset=14, lr=0.1, constants=None):
    path = os.path.join(folder, name)
    model.train()
    spread(model)
    names = export(model, inputs, path + '.onnx', opset)
    made = {**no_parameters_of(path + '.onnx'), **(constants or {})}
    expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, lr, constants=made)


def make_refused(folder):
    """One fault each, in what is computed from constants and in masks; 4 features or ids in, 3 classes out."""
    def ints(name, value):
        return helper.make_tensor(name, TensorProto.INT64, list(torch.tensor(value).shape), torch.tensor(value).flatten().tolist())

    def floats(name, *shape):
        return numpy_helper.from_array(torch.arange(float(torch.tensor(shape).prod())).reshape(shape).numpy(), name)

    node = helper.make_node
    zeros = node('ConstantOfShape', ['four'], ['zeros'], name='zeros')
    add = node('Add', ['x', 'c'], ['y'], name='add')
    four, one = ints('four', [4]), helper.make_tensor('one', TensorProto.FLOAT, [1], [1.0])
    number = helper.make_tensor('const/one', TensorProto.FLOAT, [], [1.0])
    rows = node('Gather', ['w', 'ids'], ['c'], name='rows')
    cases = {
        'scatter_outside': ([zeros, node('ScatterND', ['zeros', 'at', 'one'], ['c'], name='scatter'), add], [four, one, ints('at', [[4]])]),
        'scatter_shape': ([zeros, node('ScatterND', ['zeros', 'at', 'one'], ['c'], name='scatter'), add], [four, one, ints('at', [[1], [2]])]),
        'nothing': ([node('ConstantOfShape', ['none'], ['c'], name='nothing'), add], [ints('none', [0])]),
        'too_many': ([node('ConstantOfShape', ['many'], ['c'], name='many'), add], [ints('many', [1 << 30, 1 << 30])]),
        'rows_outside': ([rows, add], [floats('w', 3, 4), ints('ids', [[0, 2, 1, 3]])]),
        'rows_shape': ([rows, add], [floats('w', 3, 3), ints('ids', [[0, 2], [1, 1]])]),
        'rows_batch': ([rows, add], [floats('w', 3, 4), ints('ids', [0, 2, 1, 0])]),
        'compared': ([node('Greater', ['x', 'w'], ['m'], name='compare'), node('Cast', ['m'], ['y'], name='cast', to=1)], [floats('w', 4)]),
        'chosen': ([node('Greater', ['x', 'const/one'], ['m'], name='compare'), node('Where', ['m', 'x', 'w'], ['y'], name='choose')], [number, floats('w', 4)]),
        'split': ([node('Split', ['w', 'parts'], ['a', 'b'], name='split', axis=0), node('Gemm', ['x', 'a'], ['y'], transB=1, name='fc')],
                  [floats('w', 5, 4), ints('parts', [3, 3])]),
        'apart': ([node('Add', ['places', 'three'], ['sum'], name='apart'), node('Cast', ['sum'], ['c'], name='cast', to=1), add],
                  [ints('places', [0, 1, 2, 3]), ints('three', [1, 2, 3])]),
        'turned': ([node('Transpose', ['w'], ['c'], name='turn', perm=[1, 0]),
                    node('Gemm', ['x', 'v', 'c'], ['y'], name='fc', transB=1, alpha=0.5, beta=2.0)], [floats('w', 4, 1), floats('v', 4, 4)]),
    }  # fmt: skip
    for name, (nodes, stored) in cases.items():
        graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('N', 4))],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], stored)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
        made.ir_version = 8
        onnx.save(made, os.path.join(folder, 'windows_bad_%s.onnx' % name))


def make_windows(folder):
    make_refused(folder)
    torch.manual_seed(9)
    ids = torch.tensor([[3, 1, 7, 0, 0], [5, 2, 4, 8, 9], [6, 10, 0, 0, 0], [1, 3, 5, 7, 0]])
    regions = {'/features/features.1/features.1.1/attn/Unsqueeze_61_output_0': 9 * 16 * 16}
    make_one(folder, 'swin', swin(), (torch.randn(4, 3, 20, 24),), 17, 0.02, regions)
    cases = {'encoder': (Padded(), (ids,)), 'causal': (Padded(is_causal=True), (ids,)),
             'given': (Padded(is_given=True, norm_first=True), (ids, ids == 0)), 'sum': (Hidden('sum'), (ids,)),
             'expanded': (Hidden('expanded'), (ids, (ids != 0).long())), 'own': (Hidden('expanded'), (ids,)),
             'filled': (Hidden('filled'), (ids, (ids != 0).long())), 'repeated': (Hidden('repeated'), (ids,)),
             'soft': (Hidden('soft'), (ids,)), 'chosen': (Hidden('chosen'), (ids,))}
    for name, (model, inputs) in cases.items():
        make_one(folder, 'pad_' + name, model, inputs)
    pair = (torch.randn(4, 6, 3), torch.randn(4, 7, 4))
    for form in ('heads', 'unbiased', 'three', 'decoder'):
        make_one(folder, 'cross_' + form, Crossed(form), pair)
    make_one(folder, 'cross_tokens_first', Crossed('heads', False), pair)
    make_one(folder, 'cross_translator', Translator(), (ids, ids[:, 1:].clone()))
