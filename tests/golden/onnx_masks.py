"""Decoders with the masks that people write, and what PyTorch (float64) makes of them (make_onnx.py, onnx_nets.py)."""
import os

import onnx
import torch
import torch.nn as nn
from onnx import helper
from onnx_export import expect, export


class Decoder(nn.Module):
    """One layer of attention that looks back only. `mask`: what is added or chosen, and of what it is made."""

    def __init__(self, mask, d=8, heads=2, longest=7, kv_heads=None, form='apart'):
        super().__init__()
        self.mask, self.heads, self.form = mask, heads, form
        self.kv_heads = kv_heads or heads
        self.table, self.positions = nn.Embedding(11, d), nn.Embedding(longest, d)
        kv = d // heads * self.kv_heads
        if form == 'apart':
            self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, kv), nn.Linear(d, kv)
        else:
            self.qkv = nn.Linear(d, d + 2 * kv)
        self.fc = nn.Linear(d, 3)
        ones = torch.ones(longest, longest)
        if mask == 'table':
            self.register_buffer('seen', torch.tril(ones)[None, None])
        elif mask == 'bools':
            self.register_buffer('seen', torch.tril(ones).bool()[None, None])
        elif mask in ('biases', 'stored'):
            # Linear biases, each head its own (Press et al. 2022); or what lies ahead alone.
            steps = torch.arange(5)
            biases = -(steps[None] - steps[:, None]).abs() * torch.tensor([0.5, 0.25])[:, None, None]
            ahead = torch.where(steps[None] > steps[:, None], -1e9, 0.0)
            self.register_buffer('seen', ahead if mask == 'stored' else biases + ahead)

    def split(self, x):
        x = x.view(x.size(0), x.size(1), -1, self.table.weight.size(1) // self.heads).transpose(1, 2)
        if x.size(1) == self.heads:
            return x
        n, heads, t, width = x.shape
        return x[:, :, None].expand(n, heads, self.heads // heads, t, width).reshape(n, self.heads, t, width)

    def parts(self, h):
        """q, k and v as (N, heads, T, width)."""
        if self.form == 'apart':
            return self.split(self.query(h)), self.split(self.key(h)), self.split(self.value(h))
        n, t, d = h.shape
        if self.form == 'permuted':
            return self.qkv(h).reshape(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        kv = d // self.heads * self.kv_heads
        parts = self.qkv(h).split([d, kv, kv], 2) if self.form == 'split' else self.qkv(h).chunk(3, -1)
        return [self.split(part) for part in parts]

    def hide(self, scores):
        t = scores.size(-1)
        if self.mask == 'table':
            return scores.masked_fill(self.seen[:, :, :t, :t] == 0, float('-inf'))
        if self.mask == 'bools':
            lowest = torch.tensor(torch.finfo(torch.float32).min, dtype=scores.dtype)
            return torch.where(self.seen[:, :, :t, :t], scores, lowest)
        if self.mask == 'triangle':
            return scores + torch.triu(torch.full((t, t), float('-inf'), dtype=scores.dtype), 1)
        if self.mask in ('biases', 'stored'):
            return scores + self.seen
        steps = torch.arange(t)
        return scores.masked_fill((steps[None] > steps[:, None])[None, None], -5.0 if self.mask == 'soft' else -1e4)

    def forward(self, x):
        h = self.table(x) + self.positions(torch.arange(x.size(1))[None])
        if self.form == 'einsum':
            n, t, d = h.shape
            q, k, v = (part.view(n, t, self.heads, -1) for part in self.qkv(h).chunk(3, -1))
            weights = torch.softmax(self.hide(torch.einsum('bqhd,bkhd->bhqk', q, k) * 0.5), -1)
            h = h + torch.einsum('bhqk,bkhd->bqhd', weights, v).reshape(n, t, d)
            return self.fc(h).mean(1)
        q, k, v = self.parts(h)
        if self.form == 'chunk':  # both sides are scaled, as scaled_dot_product_attention() is written out
            weights = torch.softmax(self.hide((q * 0.5 ** 0.5) @ (k.transpose(-1, -2) * 0.5 ** 0.5)), -1)
        else:
            weights = torch.softmax(self.hide(q @ k.transpose(-1, -2) * 0.5), -1)
        h = h + (weights @ v).transpose(1, 2).reshape(h.shape)
        return self.fc(h).mean(1)


class Rms(nn.Module):
    """RMSNorm as it is written out: by rsqrt, or by a root and a quotient."""

    def __init__(self, d, is_quotient):
        super().__init__()
        self.weight, self.is_quotient = nn.Parameter(1 + 0.1 * torch.randn(d)), is_quotient

    def forward(self, x):
        if self.is_quotient:
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    """A layer of a decoder of today: RMSNorm, rotary positions (Su et al. 2021), shared keys, SwiGLU."""

    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads, width = heads, d // heads
        self.table = nn.Embedding(11, d)
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, width, bias=False)
        self.v, self.o = nn.Linear(d, width, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = (nn.Linear(d, 12, bias=False), nn.Linear(d, 12, bias=False),
                                         nn.Linear(12, d, bias=False))
        self.first, self.second, self.last = Rms(d, False), Rms(d, True), Rms(d, False)
        self.fc = nn.Linear(d, 3)
        angles = torch.arange(5)[:, None] * 10.0 ** -torch.arange(0, width, 2)[None]
        angles = torch.cat([angles, angles], 1)
        self.register_buffer('cos', angles.cos())
        self.register_buffer('sin', angles.sin())

    def turn(self, x):
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sin

    def split(self, x, heads):
        return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)

    def forward(self, ids):
        x = self.table(ids)
        h = self.first(x)
        q, k, v = self.split(self.q(h), self.heads), self.split(self.k(h), 1), self.split(self.v(h), 1)
        n, _, t, width = k.shape
        q, k = self.turn(q), self.turn(k)
        k, v = (part[:, :, None].expand(n, 1, self.heads, t, width).reshape(n, self.heads, t, width) for part in (k, v))
        scores = q @ k.transpose(-1, -2) * 0.5 + torch.triu(torch.full((t, t), -1e9, dtype=q.dtype), 1)
        x = x + self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, -1))
        h = self.second(x)
        x = x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))
        return self.fc(self.last(x)[:, -1])


def made_of(path):
    """The parameters that the reader makes of a choice of 5 x 5 that hides nothing, which never change."""
    made = {}
    for node in onnx.load(path).graph.node:
        if node.op_type == 'Where':
            made[node.output[0] + '/mask'] = made[node.output[0] + '/other'] = 25
    return made


def fix_buffers(model, path):
    """The file says what is trained: no buffer is."""
    file = onnx.load(path)
    trained = [name for name, p in model.named_parameters()]
    helper.set_model_props(file, {'dunlin.trained': '\n'.join(trained)})
    onnx.save(file, path)


def make_masks(folder):
    torch.manual_seed(4)
    for name in ('table', 'bools', 'triangle', 'steps'):
        path = os.path.join(folder, 'mask_' + name)
        model, inputs = Decoder(name), (torch.randint(0, 11, (4, 5)),)
        model.train()
        names = [n for n in export(model, inputs, path + '.onnx', 14) if n != 'seen']
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.2)
    torch.manual_seed(7)
    cases = {'soft': Decoder('soft'), 'stored': Decoder('stored'), 'biases': Decoder('biases', form='permuted'),
             'shared': Decoder('table', heads=4, kv_heads=2, form='split'), 'chunk': Decoder('steps', form='chunk'),
             'einsum': Decoder('table', form='einsum'), 'llama': Llama()}
    for name, model in cases.items():
        path, inputs = os.path.join(folder, 'mask_' + name), (torch.randint(0, 11, (4, 5)),)
        model.train()
        names = export(model, inputs, path + '.onnx', 14)
        constants = made_of(path + '.onnx') if name == 'soft' else {}
        if name in ('biases', 'llama'):
            fix_buffers(model, path + '.onnx')
            constants = {'seen': 50} if name == 'biases' else {'cos': 20, 'sin': 20}
        names = [n for n in names if n not in ('seen', 'cos', 'sin')]
        expect(model, inputs, torch.arange(4) % 3, names, path + '.expect', 3, 0.2, constants=constants)
