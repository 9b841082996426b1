"""Networks as PyTorch exports them for training, and what PyTorch (float64) makes of them.

Used by make_onnx.py. For each network: NAME.onnx, and NAME.expect, which tests/unit/net/net_expect.c
reads: a batch, its logits, and after some steps of SGD the losses and a sketch of every parameter's
change.
"""
import os
import struct

import numpy as np
import onnx
import torch
import torch.nn as nn
from onnx import numpy_helper



# --- BERT, with the graph that Hugging Face's exports have ---


class Embeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c['vocabulary'], c['d'], padding_idx=0)
        self.position_embeddings = nn.Embedding(c['positions'], c['d'])
        self.token_type_embeddings = nn.Embedding(2, c['d'])
        self.LayerNorm = nn.LayerNorm(c['d'], eps=1e-12)
        self.dropout = nn.Dropout(c['dropout'])
        self.register_buffer('position_ids', torch.arange(c['positions']).expand((1, -1)))
        self.register_buffer('token_type_ids', torch.zeros((1, c['positions']), dtype=torch.long))

    def forward(self, ids, types):
        length = ids.size(1)
        position_ids = self.position_ids[:, 0:length]
        if types is None:
            types = self.token_type_ids[:, :length].expand(ids.size(0), length)
        x = self.word_embeddings(ids) + self.token_type_embeddings(types)
        x = x + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(x))


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.width = c['heads'], c['d'] // c['heads']
        self.query = nn.Linear(c['d'], c['d'])
        self.key = nn.Linear(c['d'], c['d'])
        self.value = nn.Linear(c['d'], c['d'])
        self.dropout = nn.Dropout(c['dropout'])

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.width)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        key, value = self.split(self.key(x)), self.split(self.value(x))
        query = self.split(self.query(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / self.width ** 0.5
        probabilities = self.dropout(nn.functional.softmax(scores + mask, dim=-1))
        x = torch.matmul(probabilities, value).permute(0, 2, 1, 3).contiguous()
        return x.view(x.size()[:-2] + (self.heads * self.width,))


class Output(nn.Module):
    def __init__(self, c, n_in):
        super().__init__()
        self.dense = nn.Linear(n_in, c['d'])
        self.LayerNorm = nn.LayerNorm(c['d'], eps=1e-12)
        self.dropout = nn.Dropout(c['dropout'])

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = nn.ModuleDict({'self': SelfAttention(c), 'output': Output(c, c['d'])})
        self.intermediate = nn.ModuleDict({'dense': nn.Linear(c['d'], 4 * c['d'])})
        self.output = Output(c, 4 * c['d'])

    def forward(self, x, mask):
        x = self.attention['output'](self.attention['self'](x, mask), x)
        return self.output(nn.functional.gelu(self.intermediate['dense'](x)), x)


class Bert(nn.Module):
    """Inputs: ids alone, or ids, attention mask and token types."""

    def __init__(self, c):
        super().__init__()
        self.embeddings = Embeddings(c)
        self.layer = nn.ModuleList([Layer(c) for _ in range(c['layers'])])
        self.pooler = nn.Linear(c['d'], c['d'])
        self.dropout = nn.Dropout(c['dropout'])
        self.classifier = nn.Linear(c['d'], c['classes'])

    def forward(self, ids, mask=None, types=None):
        if mask is None:
            mask = torch.ones(ids.size(), dtype=torch.long)
        mask = mask[:, None, None, :].to(self.pooler.weight.dtype)
        mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.embeddings(ids, types)
        for layer in self.layer:
            x = layer(x, mask)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


BERT_SMALL = dict(layers=4, d=512, heads=8, vocabulary=30522, positions=512, classes=10, length=64)
BERT_TINY = dict(layers=1, d=8, heads=2, vocabulary=20, positions=9, classes=3, length=6)


def bert_inputs(c, n, n_inputs):
    ids = torch.randint(1, c['vocabulary'], (n, c['length']))
    mask = torch.ones_like(ids)
    for i in range(n):
        mask[i, c['length'] - i - 1:] = 0
    types = (torch.arange(c['length']) > c['length'] // 2).long().expand(n, -1)
    return (ids, mask, types)[:n_inputs]


# --- exports and expectations ---


def signs(n):
    """+1 or -1 for each element, the same in net_expect.c."""
    i = np.arange(n, dtype=np.uint64)
    h = (i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return 1.0 - 2.0 * (h & np.uint64(1)).astype(np.float64)


def export(model, inputs, path, opset):
    names = ['x'] if len(inputs) == 1 else ['input_ids', 'attention_mask', 'token_type_ids']
    axes = {name: {0: 'N'} for name in names + ['y']}
    torch.onnx.export(model, inputs, path, opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=names, output_names=['y'], dynamic_axes=axes)
    made = onnx.load(path)
    for node in made.graph.node:
        node.doc_string = ''
    # Exporting runs the network, which moves running statistics: the file's values count.
    state = model.state_dict()
    for tensor in made.graph.initializer:
        if tensor.name in state:
            value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            state[tensor.name].copy_(value.reshape(state[tensor.name].shape))
    onnx.save(made, path)
    return [t.name for t in made.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]


def stored(tensor):
    return tensor.detach().double().numpy().ravel()


def expect(model, inputs, labels, names, path, n_steps, lr):
    """What float64 makes of it: dropout off, batch norm by the batch."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model = model.double()
    model.eval()
    doubles = [t.double() if t.is_floating_point() else t for t in inputs]
    with torch.no_grad():
        logits = model(*doubles)
    model.train()
    state = model.state_dict()
    before = {name: stored(state[name]).copy() for name in names if name in state}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(*doubles), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    n = labels.shape[0]
    x = np.concatenate([t.numpy().reshape(n, -1).astype(np.float32) for t in inputs], axis=1)
    with open(path, 'wb') as file:
        file.write(struct.pack('<5if', n, x.shape[1], logits.shape[1], n_steps, len(before), lr))
        file.write(x.tobytes())
        file.write(labels.numpy().astype('<i4').tobytes())
        file.write(stored(logits).tobytes())
        file.write(np.array(losses, dtype='<f8').tobytes())
        for name, old in before.items():
            delta = stored(state[name]) - old
            file.write(struct.pack('<i', len(name)) + name.encode())
            file.write(struct.pack('<2d', float(np.sqrt((delta ** 2).sum())),
                                   float((delta * signs(delta.size)).sum())))


def make(model, inputs, n_classes, folder, name, opset, n_steps=3, lr=0.05):
    torch.manual_seed(len(name))
    model.train()
    labels = torch.arange(inputs[0].shape[0]) % n_classes
    names = export(model, inputs, os.path.join(folder, name + '.onnx'), opset)
    expect(model, inputs, labels, names, os.path.join(folder, name + '.expect'), n_steps, lr)


def make_small(folder):
    """The committed ones, a few KB each."""
    torch.manual_seed(1)
    for opset in (13, 17):
        c = dict(BERT_TINY, dropout=0.1 if opset == 17 else 0.0)
        make(Bert(c), bert_inputs(c, 3, 1), c['classes'], folder, 'bert%d' % opset, opset)
    c = dict(BERT_TINY, dropout=0.0)
    make(Bert(c), bert_inputs(c, 3, 3), c['classes'], folder, 'bert_inputs', 17)


def make_large(folder, wanted):
    """torchvision's six and BERT-small."""
    import torchvision
    sizes = {'mobilenet_v2': 96, 'squeezenet1_1': 64, 'resnet18': 64, 'resnet50': 64,
             'densenet121': 64, 'vgg16': 224}
    for name, size in sizes.items():
        for opset in (13, 17) if name != 'vgg16' else (17,):
            if wanted and name not in wanted:
                continue
            torch.manual_seed(2)
            # A small rate: these networks multiply rounding, and a ReLU that switches is seen.
            model = getattr(torchvision.models, name)(num_classes=10)
            batch = 1 if name == 'vgg16' else 4
            make(model, (torch.randn(batch, 3, size, size),), 10, folder,
                 '%s_%d' % (name, opset), opset, lr=0.001,
                 n_steps=1 if name in ('mobilenet_v2', 'resnet50', 'vgg16') else 3)
    for opset, dropout, n_inputs in ((13, 0.1, 1), (17, 0.0, 3)):
        if not wanted or 'bert_small' in wanted:
            torch.manual_seed(2)
            c = dict(BERT_SMALL, dropout=dropout)
            make(Bert(c), bert_inputs(c, 2, n_inputs), c['classes'], folder,
                 'bert_small_%d' % opset, opset, lr=0.01)
