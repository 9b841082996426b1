#!/usr/bin/python3
"""Networks with odd ends and roles, exported by PyTorch, trained by dunlin-train and by PyTorch.

odd_files.py DUNLIN-TRAIN [--seeds N] [--csv FILE] [NAME...]

For each network and seed: 20 steps of 8 examples with the same weights, examples and order in dunlin-train, in PyTorch's
float64 and in its float32. The error of a run is the largest over its parameters of the largest difference from float64
over the largest value there. The median of the seeds may be 1e-5, or four times that of PyTorch's float32. What the
author froze, or made a buffer, must not move at all. Status 1 if a network is beyond that. Needs python3-torch and
python3-onnx.
"""
import argparse
import copy
import csv
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import numpy_helper

STEPS, BATCH, RATE, MOMENTUM = 20, 8, 0.01, 0.9
MEAN, DEVIATION = np.float32(0.130660), np.float32(0.308108)  # of the data set's pixels, as dataset.h says


class Net(nn.Module):
    """Convolution and pooling, then what a network of the list has."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=3)
        self.fc = nn.Linear(4 * 16, 10)

    def body(self, x):
        return F.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1)

    def forward(self, x):
        return self.end(self.fc(self.body(x)))

    def end(self, z):
        return z


def ends(function):
    class Made(Net):
        def end(self, z):
            return function(z)

    return Made


class Twice(Net):
    """One layer, used three times."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(64, 64)

    def forward(self, x):
        z = self.body(x)
        for _ in range(3):
            z = torch.tanh(self.again(z))
        return self.fc(z)


class TwiceConv(Net):
    def __init__(self):
        super().__init__()
        self.again = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        z = torch.relu(self.conv(x))
        z = torch.relu(self.again(torch.relu(self.again(z))))
        return self.fc(F.max_pool2d(z, 2).flatten(1))


class Branches(Net):
    """Two branches with the same weights; their difference is told apart."""

    def __init__(self):
        super().__init__()
        self.side = nn.Linear(32, 12)
        self.fc = nn.Linear(12, 10)

    def forward(self, x):
        left, right = torch.split(self.body(x), 32, 1)
        return self.fc(torch.relu(self.side(left)) - torch.relu(self.side(right)))


class Buffer(Net):
    """A table that is added and is no weight."""

    def __init__(self):
        super().__init__()
        self.register_buffer('table', torch.randn(64))

    def forward(self, x):
        return self.fc(self.body(x) + self.table)


class Scaled(Net):
    """A vector that only multiplies, and is a weight."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        return self.fc(self.body(x) * self.scale)


class FrozenConv(Net):
    def __init__(self):
        super().__init__()
        self.conv.requires_grad_(False)


class HeadOnly(Net):
    def __init__(self):
        super().__init__()
        self.conv.requires_grad_(False)
        self.hidden = nn.Linear(64, 64).requires_grad_(False)

    def forward(self, x):
        return self.fc(torch.relu(self.hidden(self.body(x))))


class BiasOnly(Net):
    def __init__(self):
        super().__init__()
        for parameter in (self.conv.weight, self.fc.weight):
            parameter.requires_grad_(False)


class NoAffine(Net):
    """Batch norm whose scale and shift are constants of the graph."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4, affine=False)

    def body(self, x):
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1)


class Normed(NoAffine):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)


class GateInTheMiddle(Net):
    """A softmax that is no end."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(64, 64)

    def forward(self, x):
        z = self.body(x)
        return self.fc(z * torch.softmax(self.gate(z), 1))


class SigmoidInTheMiddle(GateInTheMiddle):
    def forward(self, x):
        z = self.body(x)
        return self.fc(z * torch.sigmoid(self.gate(z)))


class PooledEnd(Net):
    """Scores as the mean over pixels."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(4, 10, 3)

    def forward(self, x):
        return F.adaptive_avg_pool2d(self.fc(torch.relu(self.conv(x))), 1).flatten(1)


class PooledSoftmax(PooledEnd):
    def forward(self, x):
        return torch.softmax(super().forward(x), 1)


class PixelEnd(Net):
    """Ends in a function of the channels of one pixel, which is flattened afterwards."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.fc = nn.Conv2d(4, 10, 3)

    def forward(self, x):
        z = F.adaptive_avg_pool2d(self.fc(torch.relu(self.conv(x))), 1)
        return self.function(z).flatten(1)


class GateOfChannels(Net):
    """A softmax over the channels of each pixel."""

    def body(self, x):
        z = self.conv(x)
        return F.max_pool2d(torch.relu(z * torch.softmax(z, 1)), 2).flatten(1)


class Mirrored(Net):
    """An autoencoder in the middle whose two halves are one matrix."""

    def __init__(self):
        super().__init__()
        self.narrow = nn.Linear(64, 12)
        self.back = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        z = torch.tanh(self.narrow(self.body(x)))
        return self.fc(torch.tanh(F.linear(z, self.narrow.weight.t(), self.back)))


class TurnedHead(Mirrored):
    """The head is the transposed matrix of the first half, without a bias."""

    def __init__(self):
        super().__init__()
        self.fc = None
        self.wide = nn.Linear(10, 64)
        self.back = None

    def forward(self, x):
        z = F.linear(torch.tanh(self.narrow(self.body(x))), self.narrow.weight.t())
        return torch.matmul(torch.tanh(self.wide(torch.matmul(z, self.wide.weight))), self.wide.weight)


class NormAtTheEnd(Net):
    """Layer norm after the head."""

    def __init__(self):
        super().__init__()
        self.last = nn.LayerNorm(10)

    def end(self, z):
        return self.last(z)


# Name: the network, the loss of dunlin-train, whether the file gets the list of what is trained.
NETWORKS = {
    'softmax': (ends(lambda z: torch.softmax(z, 1)), 'cross-entropy', False),
    'softmax_last_axis': (ends(lambda z: torch.softmax(z, -1)), 'cross-entropy', False),
    'log_softmax': (ends(lambda z: torch.log_softmax(z, 1)), 'cross-entropy', False),
    'softmax_reshaped': (ends(lambda z: torch.softmax(z, 1).reshape(z.shape[0], 10)), 'cross-entropy', False),
    'sigmoid': (ends(torch.sigmoid), 'bce', False),
    'softmax_under_bce': (ends(lambda z: torch.softmax(z, 1)), 'bce', False),
    'sigmoid_under_ce': (ends(torch.sigmoid), 'cross-entropy', False),
    'scaled_end': (ends(lambda z: z * 0.5), 'cross-entropy', False),
    'norm_at_the_end': (NormAtTheEnd, 'cross-entropy', False),
    'pooled_end': (PooledEnd, 'cross-entropy', False),
    'pooled_softmax': (PooledSoftmax, 'cross-entropy', False),
    'softmax_of_a_pixel': (lambda: PixelEnd(lambda z: torch.softmax(z, 1)), 'cross-entropy', False),
    'log_softmax_of_a_pixel': (lambda: PixelEnd(lambda z: torch.log_softmax(z, 1)), 'cross-entropy', False),
    'sigmoid_of_a_pixel': (lambda: PixelEnd(torch.sigmoid), 'bce', False),
    'softmax_of_a_pixel_under_bce': (lambda: PixelEnd(lambda z: torch.softmax(z, 1)), 'bce', False),
    'gate_of_channels': (GateOfChannels, 'cross-entropy', False),
    'softmax_dropout': (ends(lambda z: F.dropout(torch.softmax(z, 1), 0.0)), 'cross-entropy', False),
    'sigmoid_flattened': (ends(lambda z: torch.sigmoid(z).flatten(1)), 'bce', False),
    'gate_in_the_middle': (GateInTheMiddle, 'cross-entropy', False),
    'sigmoid_in_the_middle': (SigmoidInTheMiddle, 'cross-entropy', False),
    'layer_three_times': (Twice, 'cross-entropy', False),
    'convolution_twice': (TwiceConv, 'cross-entropy', False),
    'mirrored': (Mirrored, 'cross-entropy', False),
    'turned_head': (TurnedHead, 'cross-entropy', False),
    'branches': (Branches, 'cross-entropy', False),
    'buffer': (Buffer, 'cross-entropy', True),
    'scale': (Scaled, 'cross-entropy', False),
    'frozen_convolution': (FrozenConv, 'cross-entropy', True),
    'head_only': (HeadOnly, 'cross-entropy', True),
    'bias_only': (BiasOnly, 'cross-entropy', True),
    'batch_norm': (Normed, 'cross-entropy', False),
    'batch_norm_of_constants': (NoAffine, 'cross-entropy', False),
}


def loss_of(kind, outputs, network, labels):
    """As an author would write it for what the network ends in: probabilities have a loss of their own."""
    if kind == 'bce':
        targets = F.one_hot(labels, 10).to(outputs.dtype)
        if network in ('sigmoid', 'sigmoid_flattened', 'sigmoid_of_a_pixel'):
            return F.binary_cross_entropy(outputs, targets)
        return F.binary_cross_entropy_with_logits(outputs, targets)
    if network in ('softmax', 'softmax_last_axis', 'softmax_reshaped', 'softmax_of_a_pixel', 'pooled_softmax', 'softmax_dropout'):
        return F.nll_loss(torch.log(outputs), labels)
    return F.nll_loss(outputs, labels) if network.startswith('log_softmax') else F.cross_entropy(outputs, labels)


def train_torch(start, network, kind, pixels, labels, dtype):
    model = copy.deepcopy(start).to(dtype).train()
    x = torch.tensor((pixels.astype(np.float32) / 255 - MEAN) / DEVIATION).to(dtype)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE, MOMENTUM)
    for step in range(STEPS):
        at = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss_of(kind, model(x[at]), network, labels[at]).backward()
        optimizer.step()
    return {name: value.detach().double().numpy() for name, value in model.state_dict().items()}


def write_data(folder, rng):
    os.makedirs(os.path.join(folder, 'mnist'), exist_ok=True)
    n = STEPS * BATCH
    pixels = rng.integers(0, 256, (n, 1, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    with open(os.path.join(folder, 'mnist/train-images-idx3-ubyte'), 'wb') as file:
        file.write(struct.pack('>4i', 0x803, n, 28, 28) + pixels.tobytes())
    with open(os.path.join(folder, 'mnist/train-labels-idx1-ubyte'), 'wb') as file:
        file.write(struct.pack('>2i', 0x801, n) + labels.tobytes())
    return pixels, torch.tensor(labels.astype(np.int64))


def export(model, path, is_listed):
    state = copy.deepcopy(model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(model, torch.zeros(2, 1, 28, 28), path, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, input_names=['x'], output_names=['y'],
                          dynamic_axes={'x': {0: 'N'}, 'y': {0: 'N'}})
    model.load_state_dict(state)  # exporting moves running statistics
    file = onnx.load(path)
    for tensor in file.graph.initializer:
        if tensor.name in state:
            tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
    if is_listed:
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        assert {tensor.name for tensor in file.graph.initializer}.issuperset(trained)
        onnx.helper.set_model_props(file, {'dunlin.trained': '\n'.join(trained)})
    onnx.save(file, path)


def train_dunlin(program, folder, kind, path):
    out = os.path.join(folder, 'trained.onnx')
    command = [program, '--model', path, '--dataset', 'mnist', '--data', folder, '--batch', str(BATCH), '--steps', str(STEPS),
               '--keep-order', '--schedule', 'constant', '--lr', str(RATE), '--momentum', str(MOMENTUM), '--loss', kind,
               '--save', out]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit('%s: %s' % (path, done.stderr))
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(out).graph.initializer}


def as_stored(value, shape):
    """A matrix that the network multiplies as it is comes back as the weight of a dense layer, (out, in)."""
    return value.T if value.shape != shape and value.shape == shape[::-1] else value.reshape(shape)


def largest_error(values, exact, start, fixed):
    """Over what may move; what may not must be as it was to the bit."""
    worst = 0.0
    for name, value in exact.items():
        if name.endswith('num_batches_tracked'):
            continue
        if name not in values:
            sys.exit('%s is not in the trained file' % name)
        before = start[name].numpy()
        if name in fixed:
            if not np.array_equal(as_stored(values[name].astype(np.float32), before.shape), before):
                sys.exit('%s was not to move' % name)
            continue
        worst = max(worst, np.abs(as_stored(values[name], value.shape) - value).max() / np.abs(value).max())
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--csv')
    args = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    rows = []
    for name in args.names or NETWORKS:
        make, kind, is_listed = NETWORKS[name]
        ours, theirs = [], []
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(seed)
                pixels, labels = write_data(folder, np.random.default_rng(seed))
                model = make().train()
                path = os.path.join(folder, name + '.onnx')
                export(model, path, is_listed)
                start = {key: value.clone() for key, value in model.state_dict().items()}
                running = [key for key in start if 'running_' in key]
                fixed = set(start) - {key for key, p in model.named_parameters() if p.requires_grad} - set(running)
                exact = train_torch(model, name, kind, pixels, labels, torch.float64)
                ours.append(largest_error(train_dunlin(args.program, folder, kind, path), exact, start, fixed))
                single = train_torch(model, name, kind, pixels, labels, torch.float32)
                theirs.append(largest_error(single, exact, start, fixed))
        error, peer = statistics.median(ours), statistics.median(theirs)
        is_good = error <= max(1e-5, 4 * peer)
        rows.append((name, '%.2e' % error, '%.2e' % peer, 'yes' if is_good else 'no'))
        print('%-26s %s  PyTorch float32 %s  %s' % (name, rows[-1][1], rows[-1][2], 'ok' if is_good else 'TOO FAR'), flush=True)
    if args.csv:
        with open(args.csv, 'w', newline='') as file:
            csv.writer(file).writerows([('network', 'error', 'error_of_torch_float32', 'within'), *rows])
    return 0 if all(row[3] == 'yes' for row in rows) else 1


sys.exit(main())
