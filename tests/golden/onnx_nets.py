"""Networks as PyTorch exports them for training, and what PyTorch (float64) makes of them.

Used by make_onnx.py. For each network: NAME.onnx, and NAME.expect, which tests/unit/net/net_expect.c
reads: a batch, its logits, and after some steps of SGD the losses and a sketch of every parameter's
change; with each of them how far PyTorch's own float32 is from it, the most of several runs that
differ in nothing but rounding (as in make_nets.py, whose sketches these are).

Why not a fixed tolerance: a deep network with batch norm over few pixels and ReLU is not a smooth
function of its rounding. Where an activation lies within rounding of zero its gradient is there in one
run and not in the next. In the first step of torchvision's fresh ResNet-50 (64x64, batch 4) six of some
three million activations switch, and the gradient is off by 5e-2; with float64's masks forced upon float32
by 1e-4. After three steps at a rate of 1e-3 PyTorch's own float32 and float64 have nothing in common
(MobileNetV2: 0.5 of the way apart, with the masks 1e-4). So residual branches are damped, rates are
small, and what is allowed is four times what PyTorch's float32 is off.
"""
import copy
import os
import shutil

import onnx
import onnx_moves
import onnx_pixels
import onnx_pools
import onnx_signals
import torch
import torch.nn as nn
from make_nets import VARIANTS
from onnx import helper, numpy_helper
from onnx_export import expect, export, make

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


# --- norms of groups as PyTorch writes them out, and forms of opsets that this PyTorch cannot write ---


class Groups(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3)
        self.norm = nn.GroupNorm(3, 6)
        self.depth = nn.Conv2d(6, 6, 3, groups=6, bias=False)
        self.each = nn.InstanceNorm2d(6, affine=True)
        self.all = nn.GroupNorm(1, 6, eps=1e-3)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.relu(self.each(self.depth(x)))
        return self.fc(self.all(x).mean((2, 3)))


class Forms(nn.Module):
    """The same as form_nodes() writes in the words of opset 18, 20 or 21."""

    def __init__(self, approximate):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.rows = nn.LayerNorm(3)
        self.gelu = nn.GELU(approximate=approximate)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = x.mean((2, 3), keepdim=True).reshape(-1, 4)
        a, b = x.split([3, 1], 1)
        x = self.rows(torch.stack([a, a * 0.5 + b], 1))
        left, right = x.split([2, 1], 2)
        x = self.gelu(torch.cat([x.mean(1), left.mean(1), right.mean(1)], 1))
        return self.fc(x)


def form_nodes(opset):
    """Forms with what a file may say since: axes as inputs, num_outputs, allowzero, a part of a shape, one float as a
    constant, Gelu (20), GroupNormalization (21)."""
    node = helper.make_node

    def ints(name, *values):
        return node('Constant', [], [name], value_ints=values)

    nodes = [node('Conv', ['x', 'conv.weight', 'conv.bias'], ['c'], auto_pad='NOTSET', dilations=[1, 1], group=1,
                  pads=[1, 1, 1, 1], strides=[1, 1])]
    if opset >= 21:
        nodes += [node('GroupNormalization', ['c', 'norm.weight', 'norm.bias'], ['n'], num_groups=2, epsilon=1e-5,
                       stash_type=1)]
    else:
        nodes += [ints('zero', 0), ints('groups', 2), ints('rest', -1), ints('image_axes', 1, 2),
                  node('Concat', ['zero', 'groups', 'rest'], ['grouped_shape'], axis=0),
                  node('Reshape', ['c', 'grouped_shape'], ['grouped']),
                  node('Constant', [], ['one_value'], value_float=1.0),
                  node('Constant', [], ['zero_value'], value_float=0.0),
                  node('Expand', ['one_value', 'groups'], ['ones']),
                  node('Expand', ['zero_value', 'groups'], ['zeros']),
                  node('InstanceNormalization', ['grouped', 'ones', 'zeros'], ['normed'], epsilon=1e-5),
                  node('Shape', ['c'], ['image_shape'], start=0),
                  node('Reshape', ['normed', 'image_shape'], ['image'], allowzero=1),
                  node('Unsqueeze', ['norm.weight', 'image_axes'], ['scale']),
                  node('CastLike', ['scale', 'image'], ['scale_like']),
                  node('Mul', ['image', 'scale_like'], ['scaled']),
                  node('Unsqueeze', ['norm.bias', 'image_axes'], ['shift']),
                  node('Add', ['shift', 'scaled'], ['n'])]
    nodes += [node('Relu', ['n'], ['r']), ints('pixels', -1, -2),
              node('ReduceMean', ['r', 'pixels'], ['pooled'], keepdims=1, noop_with_empty_axes=0),
              node('Shape', ['x'], ['batch'], start=-4, end=1), ints('channels', 4),
              node('Concat', ['batch', 'channels'], ['flat_shape'], axis=0),
              node('Reshape', ['pooled', 'flat_shape'], ['flat'], allowzero=1), ints('sizes', 3, 1),
              node('Split', ['flat', 'sizes'], ['a', 'b'], axis=1), node('Constant', [], ['half'], value_float=0.5),
              node('CastLike', ['half', 'a'], ['half_like']), node('Mul', ['a', 'half_like'], ['a_half']),
              node('Add', ['a_half', 'b'], ['second']),
              node('Concat', ['a', 'second'], ['both'], axis=1), ints('two_rows', 0, 2, 3),
              node('Reshape', ['both', 'two_rows'], ['rows_in']),
              node('LayerNormalization', ['rows_in', 'rows.weight', 'rows.bias'], ['rows_out'], axis=-1, epsilon=1e-5,
                   stash_type=1),
              # As equal as can be: 2 and 1.
              node('Split', ['rows_out'], ['left', 'right'], axis=-1, num_outputs=2), ints('row_axis', 1)]
    nodes += [node('ReduceMean', [what, 'row_axis'], [what + '_mean'], keepdims=0) for what in ('rows_out', 'left', 'right')]
    nodes += [node('Concat', ['rows_out_mean', 'left_mean', 'right_mean'], ['means'], axis=1)]
    if opset >= 20:
        nodes += [node('Gelu', ['means'], ['g'], approximate='none' if opset == 20 else 'tanh')]
    else:
        nodes += [node('Constant', [], ['root'], value_float=2.0 ** 0.5), node('Div', ['means', 'root'], ['g1']),
                  node('Erf', ['g1'], ['g2']), node('Constant', [], ['one'], value_float=1.0),
                  node('Add', ['g2', 'one'], ['g3']), node('Mul', ['means', 'g3'], ['g4']), node('Mul', ['g4', 'half'], ['g'])]
    return nodes + [node('Gemm', ['g', 'fc.weight', 'fc.bias'], ['y'], alpha=1.0, beta=1.0, transA=0, transB=1)]


def write_forms(model, inputs, path, opset):
    """In place of export()."""
    weights = [numpy_helper.from_array(value.numpy(), name) for name, value in model.state_dict().items()]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ('N',) + shape)
             for name, shape in (('x', tuple(inputs[0].shape[1:])), ('y', (3,)))]
    graph = helper.make_graph(form_nodes(opset), 'g', ports[:1], ports[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)])
    made.ir_version = {18: 8, 20: 9, 21: 10}[opset]
    onnx.save(made, path)
    return [t.name for t in weights]


# --- what is trained and what is not; one parameter in several layers ---


class Positions(nn.Module):
    """Ids, a table of positions that is a buffer, a Linear."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        at = torch.arange(5)[:, None] / 10000 ** (torch.arange(6)[None] / 6)
        self.register_buffer('pe', torch.sin(at)[None].float())
        self.fc = nn.Linear(30, 3)

    def forward(self, ids):
        return self.fc((self.table(ids) + self.pe).flatten(1))


class Scales(nn.Module):
    """A buffer that scales, a norm whose scale and shift are constants of the graph, a layer that is frozen."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8, affine=False)
        self.body = nn.Linear(32, 6)
        self.register_buffer('k', torch.linspace(0.5, 1.5, 6))
        self.fc = nn.Linear(6, 3)
        self.body.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.fc(torch.tanh(self.body(x)) * self.k)


class Twice(nn.Module):
    """A convolution and a Linear, used twice each."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.body = nn.Linear(32, 32)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        x = self.conv(torch.tanh(self.conv(x))).flatten(1)
        return self.fc(torch.tanh(self.body(torch.tanh(self.body(x)))))


class Siamese(nn.Module):
    """Two inputs through the same layers, a LayerNorm among them."""

    def __init__(self):
        super().__init__()
        self.arm = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 5))
        self.fc = nn.Linear(10, 2)

    def forward(self, a, b):
        a, b = self.arm(a), self.arm(b)
        return self.fc(torch.cat([a * b, a - b], 1))


class Norms(nn.Module):
    """One batch norm after two layers: its running statistics move twice a step."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        x = self.norm(self.conv(x))
        return self.fc(self.norm(self.conv(torch.tanh(x)) * 2 + 1).tanh().mean((2, 3)))


class Pair(nn.Module):
    """Two images through the same layers, batch norm aside, and a row of numbers."""

    def __init__(self):
        super().__init__()
        self.arm = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2))
        self.fc = nn.Linear(16, 2)

    def forward(self, a, b, c):
        a, b = self.arm(a), self.arm(b)
        return self.fc(torch.cat([(a * b).flatten(1), (a - b).mean((2, 3)), c], 1))


class Recommender(nn.Module):
    """Ids of rank 1: products of two tables' rows (matrix factorisation) and layers over both (NCF)."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(7, 4), nn.Embedding(9, 4)
        self.bias = nn.Embedding(9, 1)
        self.body = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
        self.fc = nn.Linear(8, 2)

    def forward(self, user, item):
        u, i = self.user(user), self.item(item)
        product = (u * i).mean(1) + self.bias(item).squeeze()
        x = torch.cat([product.unsqueeze(1), product.sigmoid().view(-1, 1), self.body(torch.cat([u, i], 1))], 1)
        return self.fc(x)


class Tied(nn.Module):
    """The head is the table of tokens: of the last token (a product), or of all tokens with a bias of its own."""

    def __init__(self, has_rows):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6))
        self.bias = nn.Parameter(0.1 * torch.randn(11)) if has_rows else None

    def forward(self, x):
        x = self.body(self.table(x))
        if self.bias is None:
            return nn.functional.linear(x[:, -1], self.table.weight)
        return nn.functional.linear(x, self.table.weight, self.bias).mean(1)


class Mirrored(nn.Module):
    """An autoencoder whose decoder uses the encoder's matrices transposed, with biases of its own; of one
    row a sample, or of rows of tokens."""

    def __init__(self, has_rows):
        super().__init__()
        self.encode = nn.ModuleList([nn.Linear(7, 5), nn.Linear(5, 4)])
        self.back = nn.ParameterList([nn.Parameter(0.1 * torch.randn(7)), nn.Parameter(0.1 * torch.randn(5))])
        self.has_rows = has_rows

    def forward(self, x):
        for layer in self.encode:
            x = torch.tanh(layer(x))
        x = torch.tanh(nn.functional.linear(x, self.encode[1].weight.t(), self.back[1]))
        if not self.has_rows:
            return nn.functional.linear(x, self.encode[0].weight.t(), self.back[0])
        return torch.matmul(x, self.encode[0].weight).mean(1) + self.back[0]


class Ended(nn.Module):
    """Ends in a function that its loss, over what is before it, holds already."""

    def __init__(self, end):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 9), nn.Sigmoid(), nn.Linear(9, 4))
        self.end = end

    def before(self, x):
        return self.body(x)

    def forward(self, x):
        return self.end(self.before(x))


def write_kinds(model, path):
    """What PyTorch's exporter by torch.export (which this PyTorch has not) notes of each initialiser."""
    made = onnx.load(path)
    buffers = [name for name, _ in model.named_buffers()]
    for tensor in made.graph.initializer:
        info = made.graph.value_info.add(name=tensor.name)
        kind = 'BUFFER' if tensor.name in buffers else 'PARAMETER'
        # ValueInfoProto.metadata_props, field 4, which this onnx does not know.
        key = b'pkg.torch.export.graph_signature.InputSpec.kind'
        entry = b'\x0a' + bytes([len(key)]) + key + b'\x12' + bytes([len(kind)]) + kind.encode()
        info.MergeFromString(b'\x22' + bytes([len(entry)]) + entry)
    onnx.save(made, path)


def write_trained(model, path):
    """The snippet of trainer/ONNX.md."""
    file = onnx.load(path)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    stored = {tensor.name for tensor in file.graph.initializer}
    assert stored.issuperset(trained), 'export with do_constant_folding=False, which keeps the names'
    helper.set_model_props(file, {'dunlin.trained': '\n'.join(trained)})
    onnx.save(file, path)


def make_roles(folder):
    cases = [('positions', Positions(), (torch.randint(0, 11, (4, 5)),), write_kinds),
             ('scales', Scales(), (torch.randn(4, 1, 4, 4),), write_trained),
             ('reused', Twice(), (torch.randn(4, 2, 4, 4),), None),
             ('siamese', Siamese(), (torch.randn(4, 7), torch.randn(4, 7)), None),
             ('recommender', Recommender(), (torch.tensor([0, 6, 3, 3]), torch.tensor([8, 1, 1, 4])), None),
             ('pair', Pair(), (torch.randn(4, 2, 8, 8), torch.randn(4, 2, 8, 8), torch.randn(4, 1)), None),
             ('norms', Norms(), (torch.randn(4, 2, 5, 5),), None),
             ('end_softmax', Ended(nn.Softmax(1)), (torch.randn(4, 6),), None),
             ('end_log_softmax', Ended(nn.LogSoftmax(-1)), (torch.randn(4, 6),), None),
             ('end_sigmoid', Ended(nn.Sigmoid()), (torch.randn(4, 6),), None)]
    for name, model, inputs, annotate in cases:
        model.train()
        path = os.path.join(folder, name + '.onnx')
        names = export(model, inputs, path, 17)
        if name == 'end_sigmoid':
            continue  # its loss is no cross-entropy: test_end.c
        constants = {}
        if annotate is not None:
            annotate(model, path)
        if name == 'scales':
            constants = {node.output[0]: 8 for node in onnx.load(path).graph.node if node.op_type == 'Constant'}
        expect(model, inputs, torch.arange(4) % (2 if len(inputs) > 1 else 3), names,
               os.path.join(folder, name + '.expect'), 3, 0.05, constants=constants)


def make_tied(folder):
    torch.manual_seed(2)
    for name, has_rows in (('tied', False), ('tied_rows', True)):
        model, inputs = Tied(has_rows), (torch.randint(0, 11, (4, 5)),)
        model.train()
        names = export(model, inputs, os.path.join(folder, name + '.onnx'), 17)
        expect(model, inputs, torch.arange(4) * 2, names, os.path.join(folder, name + '.expect'), 3, 0.05)
    for name, has_rows in (('mirrored', False), ('mirrored_rows', True)):
        model, inputs = Mirrored(has_rows), (torch.randn(4, 3, 7) if has_rows else torch.randn(4, 7),)
        model.train()
        names = export(model, inputs, os.path.join(folder, name + '.onnx'), 17)
        expect(model, inputs, torch.arange(4), names, os.path.join(folder, name + '.expect'), 3, 0.05)


def make_small(folder):
    """The committed ones, a few KB each."""
    torch.manual_seed(1)
    for opset in (13, 17):
        c = dict(BERT_TINY, dropout=0.1 if opset == 17 else 0.0)
        make(Bert(c), bert_inputs(c, 3, 1), c['classes'], folder, 'bert%d' % opset, opset)
    c = dict(BERT_TINY, dropout=0.0)
    make(Bert(c), bert_inputs(c, 3, 3), c['classes'], folder, 'bert_inputs', 17)
    for opset in (13, 17):
        make(Groups(), (torch.randn(3, 2, 8, 8),), 3, folder, 'groups%d' % opset, opset)
    for opset in (18, 20, 21):
        model = Forms('tanh' if opset == 21 else 'none')
        inputs = (torch.randn(3, 1, 5, 5),)
        for name, value in model.state_dict().items():
            if value.dim() == 1:
                value += 0.25 * torch.randn(value.shape)
        names = write_forms(model, inputs, os.path.join(folder, 'forms%d.onnx' % opset), opset)
        expect(model, inputs, torch.arange(3), names, os.path.join(folder, 'forms%d.expect' % opset), 3, 0.05)
    make_roles(folder)
    make_tied(folder)
    onnx_moves.make_moves(folder)
    onnx_signals.make_signals(folder)
    onnx_pools.make_pools(folder)
    onnx_pixels.make_pixels(folder)


def dampen(model):
    """The last batch norm of each residual branch small, as training makes it. With all scales at 1 and a small batch
    the gradient of these networks is 1e5 times as long, and what rounding switches is a twentieth of it."""
    for part in model.modules():
        last = getattr(part, 'bn3', getattr(part, 'bn2', None) if hasattr(part, 'downsample') else None)
        if getattr(part, 'use_res_connect', False):
            last = part.conv[-1]
        if last is not None:
            nn.init.constant_(last.weight, 0.2)


def make_large(folder, wanted):
    """torchvision's six and BERT-small."""
    import torchvision
    sizes = {'mobilenet_v2': 96, 'squeezenet1_1': 64, 'resnet18': 64, 'resnet50': 64,
             'densenet121': 64, 'vgg16': 224}
    for name, size in sizes.items():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(2)
        model = getattr(torchvision.models, name)(num_classes=10)
        dampen(model)
        batch, n_steps = (1, 1) if name == 'vgg16' else (4, 3)
        has_norm = any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
        inputs = (torch.randn(batch, 3, size, size),)
        model.train()
        path = os.path.join(folder, name)
        for opset in (13, 17) if name != 'vgg16' else (17,):
            # Both files have the values of the first.
            state = None if opset == 13 else copy.deepcopy(model.state_dict())
            names = export(model, inputs, path + '_%d.onnx' % opset, opset, state)
        lr = 1e-3 if not has_norm else 1e-5 if name == 'densenet121' else 1e-4
        expect(model, inputs, torch.arange(batch) % 10, names, path + '_17.expect', n_steps, lr,
               VARIANTS if has_norm else VARIANTS[::2],
               # One image: an activation of the last maps that switches is about 1/200 of the gradient.
               switch=0.005 if name == 'vgg16' else 0.0)
        if name != 'vgg16':
            shutil.copy(path + '_17.expect', path + '_13.expect')
    for opset, dropout, n_inputs in ((13, 0.1, 1), (17, 0.0, 3)):
        if not wanted or 'bert_small' in wanted:
            torch.manual_seed(2)
            c = dict(BERT_SMALL, dropout=dropout)
            make(Bert(c), bert_inputs(c, 2, n_inputs), c['classes'], folder,
                 'bert_small_%d' % opset, opset, lr=0.01)
