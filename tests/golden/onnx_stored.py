"""What is computed from weights before it meets an activation, values whose samples are joined to a channel, softmax and norms over other dimensions
than the last, elements in a stored order (make_onnx.py)."""
import os

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx_export import expect, export


class Scaled(nn.Module):
    """CLIP's temperature, a gate of each feature by a function of a weight, a product with a matrix that is computed."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale, self.gate = nn.Linear(4, 6), nn.Parameter(torch.ones([]) * 0.7), nn.Parameter(torch.randn(6) * 0.5)
        self.matrix, self.mask = nn.Parameter(torch.randn(6, 3) * 0.4), nn.Parameter(torch.randn(6, 1) * 0.4)

    def forward(self, x):
        x = torch.tanh(self.fc(x)) * torch.sigmoid(self.gate)
        return self.scale.exp() * (x @ (self.matrix * self.mask))


class Columns(nn.Module):
    """A token for each number, and one of the class in front (Gorishniy et al. 2021)."""

    def __init__(self, d=8):
        super().__init__()
        self.weight, self.bias, self.token = nn.Parameter(torch.randn(4, d)), nn.Parameter(torch.randn(4, d)), nn.Parameter(torch.randn(d))
        self.fc = nn.Linear(d, 3)

    def forward(self, x):
        x = self.weight[None] * x[..., None] + self.bias[None]
        x = torch.cat([self.token.expand(x.size(0), 1, -1), x], dim=1)
        return self.fc(torch.tanh(x).mean(1))


class Places(nn.Module):
    """Positions of which one is the class token's (timm), and the biases of attention by a stored order of columns (LeViT)."""

    def __init__(self, d=8, heads=2):
        super().__init__()
        self.place, self.token, self.biases = nn.Parameter(torch.randn(1, 5, d)), nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(heads, 6))
        far = (torch.arange(5)[:, None] - torch.arange(5)[None, :]).abs()
        self.register_buffer('order', (far * 2) % 6)
        self.query, self.key, self.value, self.fc = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 3)

    def forward(self, x):
        x = torch.cat([(self.token + self.place[:, :1]).expand(x.size(0), -1, -1), x + self.place[:, 1:]], 1)
        q, k, v = (layer(x).view(x.size(0), 5, 2, 4).transpose(1, 2) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) * 0.5 + self.biases[:, self.order]
        return self.fc((scores.softmax(-1) @ v).transpose(1, 2).flatten(2).mean(1))


class Asked(nn.Module):
    """Rows that ask (Perceiver): trained, the same for each sample, on the left of a product too."""

    def __init__(self, d=8):
        super().__init__()
        self.rows, self.mix, self.into = nn.Parameter(torch.randn(3, d)), nn.Parameter(torch.randn(3, 4)), nn.Linear(5, d)
        self.fc = nn.Linear(d, 3)

    def forward(self, x):
        x = self.into(x)
        asked = torch.softmax(self.rows.unsqueeze(0).expand(x.size(0), -1, -1) @ x.transpose(1, 2), -1) @ x
        return self.fc((asked + torch.softmax(self.mix, -1) @ x).mean(1))


class Branches(nn.Module):
    """A softmax over branches (SKNet), over the rows of an image, a norm over channels and pixels."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.fc = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 1), nn.LayerNorm([4, 3, 5]), nn.Linear(4, 3)
        self.wa, self.wb = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        branches = torch.stack([self.a(x), self.b(x)], 1)
        z = branches.sum(1).mean((-1, -2))
        weights = torch.stack([self.wa(z), self.wb(z)], 1).softmax(1)
        x = self.norm((branches * weights[..., None, None]).sum(1))
        return self.fc((x * x.softmax(2)).mean((2, 3)))


class Windows(nn.Module):
    """Each channel of a signal is a sample, its windows are tokens (PatchTST); a deviation by the number of places less one; parts
    from the end by another part's length; rows repeated; columns in another order."""

    def __init__(self, d=8):
        super().__init__()
        self.embed, self.mix, self.fc = nn.Linear(4, d), nn.Conv1d(3, 3, 3), nn.Linear(3 * 3 * d + 6, 3)

    def forward(self, x):
        b = x.size(0)
        y = self.mix(x)
        y = y + x[:, :, -y.size(2):]
        y = torch.cat([y.mean(2), y.std(2)], 1) + 0.1 * torch.cat([x[:, :, 0], x[:, [2, 0, 1], 3]], 1)
        x = (x[:, [1, 2, 0]] + x[:, :, :2].repeat(1, 1, 4)).unfold(2, 4, 2)
        x = torch.tanh(self.embed(x.reshape(b * 3, x.size(2), 4)))
        return self.fc(torch.cat([x.reshape(b, -1), y], 1))


class Lines(nn.Module):
    """An image whose lines are samples of a convolution along them (MobileViT's reshapes, axial convolutions)."""

    def __init__(self):
        super().__init__()
        self.stem, self.line, self.end, self.fc = nn.Conv2d(2, 4, 1), nn.Linear(6, 6), nn.Conv2d(4, 3, 3, padding=1), nn.Linear(3, 3)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        y = torch.relu(self.line(x.reshape(b * c * h, w))).reshape(b * c, h, w)
        return self.fc(self.end(y.reshape(b, c, h, w)).mean((2, 3)))


class Fields(nn.Module):
    """One table for all columns of ids, whose rows begin at stored places (DeepFM)."""

    def __init__(self):
        super().__init__()
        self.table, self.fc = nn.Embedding(15, 6), nn.Linear(6, 3)
        self.register_buffer('begins', torch.tensor([0, 5, 10]))

    def forward(self, ids):
        rows = self.table(ids + self.begins)
        return self.fc(rows.sum(1) ** 2 - (rows**2).sum(1))


class Faces(nn.Module):
    """A trained mean over pixels (GeM), and cosines to rows of a weight (ArcFace)."""

    def __init__(self):
        super().__init__()
        self.stem, self.p, self.rows = nn.Conv2d(2, 5, 3), nn.Parameter(torch.ones(1) * 3), nn.Parameter(torch.randn(3, 5))

    def forward(self, x):
        x = torch.tanh(self.stem(x)).clamp(min=0.01).pow(self.p)
        x = F.avg_pool2d(x, (3, 4)).pow(1.0 / self.p).flatten(1)
        return 4 * F.linear(F.normalize(x), F.normalize(self.rows))


class Graphs(nn.Module):
    """A trained graph by einsum (ST-GCN), a weight by einsum, pairs of rows (DLRM), an image turned round, one token that asks."""

    def __init__(self):
        super().__init__()
        self.graph, self.share = nn.Parameter(torch.rand(2, 4, 4)), nn.Parameter(torch.rand(2, 4, 4))
        self.stem, self.mix, self.fc = nn.Conv2d(2, 6, 1), nn.Parameter(torch.randn(3, 5) * 0.5), nn.Linear(5, 3)
        self.one, self.heads, self.end = nn.Parameter(torch.randn(1, 1, 4)), nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        n, _, t, v = x.shape
        y = torch.einsum('nkctv,kvw->nctw', self.stem(x + torch.flip(x, [3])).view(n, 2, 3, t, v), self.graph * self.share)
        y = torch.einsum('btd,de->bte', y.mean(3).transpose(1, 2), self.mix)
        pairs = (y @ y.transpose(1, 2))[:, torch.tensor([1, 2, 2]), torch.tensor([0, 0, 1])]
        rows = x.mean(1)
        asked = self.heads(self.one.repeat(n, 1, 1), rows, rows)[0]
        return self.fc(torch.tanh(y).mean(1)) + torch.tanh(pairs) + self.end(asked[:, 0])


def make_refused(folder):
    """What is computed from weights where a stored one is needed, and orders that do not fit; (N, 2, 4) in."""
    node, number = helper.make_node, torch.arange(8.0)
    stored = {'w': number.reshape(2, 2, 2), 'g': number[:2].reshape(2, 1, 1), 'm': number.reshape(2, 4), 'k': number[:1]}
    cases = {
        'conv': [node('Mul', ['w', 'g'], ['v'], name='weight'), node('Conv', ['x', 'v'], ['c'], name='conv', kernel_shape=[2]),
                 node('Flatten', ['c'], ['y'], name='flat')],
        'gemm': [node('Flatten', ['x'], ['f'], name='flat'), node('Exp', ['m'], ['v'], name='weight'),
                 node('Gemm', ['f', 'v'], ['y'], name='fc')],
        'outside': [node('Gather', ['x', 'far'], ['c'], name='order', axis=2), node('Flatten', ['c'], ['y'], name='flat')],
        'norm': [node('LayerNormalization', ['x', 'm', 'm'], ['n'], name='norm', axis=2), node('Flatten', ['n'], ['y'], name='flat')],
        'power': [node('Tanh', ['x'], ['t'], name='tanh'), node('Pow', ['x', 't'], ['p'], name='power'), node('Flatten', ['p'], ['y'], name='flat')],
        'size': [node('Reshape', ['x', 'wrong'], ['y'], name='shape')],
        'batch': [node('Softmax', ['x'], ['s'], name='softmax', axis=0), node('Flatten', ['s'], ['y'], name='flat')],
    }  # fmt: skip
    for name, nodes in cases.items():
        used = {text for one in nodes for text in one.input}
        tensors = [numpy_helper.from_array(value.numpy(), key) for key, value in stored.items() if key in used]
        ints = {'far': [0, 4], 'wrong': [-1, 3]}
        tensors += [helper.make_tensor(key, TensorProto.INT64, [2], value) for key, value in ints.items() if key in used]
        graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('N', 2, 4))],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], tensors)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
        made.ir_version = 8
        onnx.save(made, os.path.join(folder, 'stored_bad_%s.onnx' % name))


def make_run(folder):
    """Elements by numbers that follow each other: a part, and no order."""
    nodes = [helper.make_node('Flatten', ['x'], ['f'], name='flat'), helper.make_node('Gather', ['f', 'ids'], ['p'], name='pick', axis=1),
             helper.make_node('Gemm', ['p', 'm'], ['y'], name='fc', transB=1)]  # fmt: skip
    tensors = [numpy_helper.from_array(torch.arange(8.0).reshape(2, 4).numpy(), 'm'),
               helper.make_tensor('ids', TensorProto.INT64, [4], [2, 3, 4, 5])]  # fmt: skip
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ('N', 2, 4))],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
    made.ir_version = 8
    onnx.save(made, os.path.join(folder, 'stored_run.onnx'))


def no_parameters_of(path):
    """Parameters of ours that are constants of the file, with their lengths: orders, and whole numbers that are added."""
    made, file = {}, onnx.shape_inference.infer_shapes(onnx.load(path))
    shapes = {tensor.name: (tensor.dims, tensor.data_type) for tensor in file.graph.initializer}
    shapes.update({one.output[0]: (one.attribute[0].t.dims, one.attribute[0].t.data_type) for one in file.graph.node if one.op_type == 'Constant'})
    inputs = {one.name for one in file.graph.input}  # ids: a sum of other whole numbers is one of sizes
    for one in file.graph.node:
        if one.op_type == 'Add' and one.input[0] in inputs and one.input[1] in shapes and shapes[one.input[1]][1] == TensorProto.INT64 and len(shapes[one.input[1]][0]) == 1:
            made[one.output[0] + '/stored'] = shapes[one.input[1]][0][0]
        if one.op_type == 'Gather' and one.input[1] in shapes and len(shapes[one.input[1]][0]) > 0 and one.attribute[0].i != 0:
            size = {'/Gather_3': 6}.get(one.name, 3)
            made[one.output[0] + '/order'] = size * int(torch.tensor(list(shapes[one.input[1]][0])).prod())
    return made


def make_stored(folder):
    make_refused(folder)
    make_run(folder)
    torch.manual_seed(31)
    cases = {'scaled': (Scaled(), torch.randn(4, 4)), 'columns': (Columns(), torch.randn(4, 4)), 'places': (Places(), torch.randn(4, 4, 8)),
             'asked': (Asked(), torch.randn(4, 4, 5)), 'branches': (Branches(), torch.randn(4, 2, 3, 5)),
             'windows': (Windows(), torch.randn(4, 3, 8)), 'lines': (Lines(), torch.randn(4, 2, 3, 6)),
             'faces': (Faces(), torch.randn(4, 2, 5, 6)), 'graphs': (Graphs(), torch.randn(4, 2, 3, 4)),
             'fields': (Fields(), torch.tensor([[0, 1, 4], [2, 2, 0], [4, 3, 1], [1, 0, 2]]))}  # fmt: skip
    turned = {'graphs': {'/Slice_output_0/order': 4 * 4, '/Gather_5_output_0/order': 3 * 25}}  # of an image, of pairs
    for name, (model, x) in cases.items():
        path = os.path.join(folder, 'stored_' + name)
        model.train()
        names = export(model, (x,), path + '.onnx', 17)
        expect(model, (x,), torch.arange(4) % 3, names, path + '.expect', 3, 0.05, constants={**no_parameters_of(path + '.onnx'), **turned.get(name, {})})
