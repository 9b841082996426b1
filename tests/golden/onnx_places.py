"""Networks whose tokens stand before the batch somewhere, as PyTorch's own attention has them, and a class token
(make_onnx.py)."""
import os

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx_export import expect, export


class Encoder(nn.Module):
    """nn.TransformerEncoder, whose tokens come first or not; `is_causal`: with its square mask."""

    def __init__(self, is_batch_first, is_causal=False, norm_first=False, d=8):
        super().__init__()
        self.is_batch_first, self.is_causal = is_batch_first, is_causal
        self.table = nn.Embedding(11, d)
        self.place = nn.Parameter(0.1 * torch.randn(5, d) if is_batch_first else 0.1 * torch.randn(5, 1, d))
        layer = nn.TransformerEncoderLayer(d, 2, 12, dropout=0.0, batch_first=is_batch_first, norm_first=norm_first,
                                           activation='gelu' if norm_first else 'relu')
        self.layers = nn.TransformerEncoder(layer, 1)
        self.fc = nn.Linear(d, 3)

    def forward(self, ids):
        x = self.table(ids if self.is_batch_first else ids.t()) + self.place
        t = 5
        mask = torch.triu(torch.full((t, t), float('-inf'), dtype=x.dtype), 1) if self.is_causal else None
        x = self.layers(x, mask)
        return self.fc(x.mean(1) if self.is_batch_first else x[-1])


class Heads(nn.Module):
    """nn.MultiheadAttention over a window of a sensor."""

    def __init__(self, d=8):
        super().__init__()
        self.embed, self.fc = nn.Linear(3, d), nn.Linear(d, 3)
        self.attention = nn.MultiheadAttention(d, 2, batch_first=True)

    def forward(self, x):
        x = self.embed(x)
        y, _ = self.attention(x, x, x)
        return self.fc(torch.tanh(y + x).mean(1))


class Vit(nn.Module):
    """Patches, a class token, q, k and v by one layer."""

    def __init__(self, d=8):
        super().__init__()
        self.patch, self.qkv, self.out = nn.Conv2d(2, d, 3, 3), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.token, self.place = nn.Parameter(0.1 * torch.randn(1, 1, d)), nn.Parameter(0.1 * torch.randn(1, 5, d))
        self.norm, self.fc = nn.LayerNorm(d), nn.Linear(d, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.softmax(q @ k.transpose(-2, -1) * (d // 2) ** -0.5, -1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        return self.fc(x[:, 0])


class Rows(nn.Module):
    """All tokens of all samples as rows, and back: with the batch outside, and inside."""

    def __init__(self, d=6):
        super().__init__()
        self.one, self.two, self.fc = nn.Linear(4, d), nn.Linear(d, d), nn.Linear(d, 3)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        n, t, c = x.shape
        y = torch.tanh(self.one(x.reshape(n * t, c))).view(n, t, -1)
        z = F.relu(self.two(y.transpose(0, 1).reshape(t * n, -1)) * 0.5)
        z = self.norm(z).view(t, n, -1)
        z = torch.softmax(z, 2) * z
        return self.fc(z.mean(0) + y.permute(1, 0, 2)[2])


def make_refused(folder):
    """What cannot be done sample by sample."""
    turn = helper.make_node('Transpose', ['x'], ['t'], name='turn', perm=[1, 0])
    cases = {'softmax': [helper.make_node('Softmax', ['t'], ['u'], name='over', axis=1)],
             'sum': [helper.make_node('ReduceMean', ['t'], ['u'], name='over', axes=[1], keepdims=1)],
             'unknown': [helper.make_node('CumSum', ['t', 'axis'], ['u'], name='over')],
             'mixed': [helper.make_node('Add', ['t', 'x'], ['u'], name='over')],
             'output': []}
    for name, nodes in cases.items():
        last = [helper.make_node('Transpose', ['u'], ['y'], name='back', perm=[1, 0])] if nodes else []
        nodes = [turn] + nodes + last
        if name == 'output':
            nodes = [helper.make_node('Relu', ['x'], ['t'], name='relu'),
                     helper.make_node('Transpose', ['t'], ['y'], name='turn', perm=[1, 0])]
        axis = helper.make_tensor('axis', TensorProto.INT64, [], [0])
        graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('N', 4))],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], [axis])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
        made.ir_version = 8
        onnx.save(made, os.path.join(folder, 'place_bad_%s.onnx' % name))


def make_places(folder):
    ids = (torch.arange(20).reshape(4, 5) * 7 % 11,)
    torch.manual_seed(8)
    cases = [('place_encoder', Encoder(True), ids), ('place_tokens_first', Encoder(False, True), ids),
             ('place_norm_first', Encoder(False, norm_first=True), ids), ('place_heads', Heads(), (torch.randn(4, 6, 3),)),
             ('place_vit', Vit(), (torch.randn(4, 2, 6, 6),)), ('place_rows', Rows(), (torch.randn(4, 3, 4),))]
    for name, model, inputs in cases:
        path = os.path.join(folder, name)
        model.train()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn(parameter.shape))
        names = export(model, inputs, path + '.onnx', 14)
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.1)
    make_refused(folder)
