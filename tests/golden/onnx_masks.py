"""Decoders with the masks that people write, and what PyTorch (float64) makes of them (make_onnx.py, onnx_nets.py)."""
import os

import onnx
import torch
import torch.nn as nn
from onnx_export import expect, export


class Decoder(nn.Module):
    """One layer of attention that looks back only. `mask`: what is added or chosen, and of what it is made."""

    def __init__(self, mask, d=8, heads=2, longest=7):
        super().__init__()
        self.mask, self.heads = mask, heads
        self.table, self.positions = nn.Embedding(11, d), nn.Embedding(longest, d)
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.fc = nn.Linear(d, 3)
        ones = torch.ones(longest, longest)
        if mask == 'table':
            self.register_buffer('seen', torch.tril(ones)[None, None])
        elif mask == 'bools':
            self.register_buffer('seen', torch.tril(ones).bool()[None, None])

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def hide(self, scores):
        t = scores.size(-1)
        if self.mask == 'table':
            return scores.masked_fill(self.seen[:, :, :t, :t] == 0, float('-inf'))
        if self.mask == 'bools':
            lowest = torch.tensor(torch.finfo(torch.float32).min, dtype=scores.dtype)
            return torch.where(self.seen[:, :, :t, :t], scores, lowest)
        if self.mask == 'triangle':
            return scores + torch.triu(torch.full((t, t), float('-inf'), dtype=scores.dtype), 1)
        steps = torch.arange(t)
        return scores.masked_fill((steps[None] > steps[:, None])[None, None], -1e4)

    def forward(self, x):
        h = self.table(x) + self.positions(torch.arange(x.size(1))[None])
        q, k, v = self.split(self.query(h)), self.split(self.key(h)), self.split(self.value(h))
        weights = torch.softmax(self.hide(q @ k.transpose(-1, -2) * 0.5), -1)
        h = h + (weights @ v).transpose(1, 2).reshape(h.shape)
        return self.fc(h).mean(1)


def made_of(path):
    """The parameters that the reader makes of masks of 5 x 5, which never change."""
    nodes, made = onnx.load(path).graph.node, {}
    triangles = [node.output[0] for node in nodes if node.op_type == 'Trilu']
    for node in nodes:
        if node.op_type == 'Where' or set(triangles) & set(node.input):
            made[node.output[0] + '/mask'] = 25
        if node.op_type == 'Where':
            made[node.output[0] + '/other'] = 25
    return made


def make_masks(folder):
    torch.manual_seed(4)
    for name in ('table', 'bools', 'triangle', 'steps'):
        path = os.path.join(folder, 'mask_' + name)
        model, inputs = Decoder(name), (torch.randint(0, 11, (4, 5)),)
        model.train()
        names = [n for n in export(model, inputs, path + '.onnx', 14) if n != 'seen']
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.2, constants=made_of(path + '.onnx'))
