"""PyTorch's side of integers.py: the same network, first weights, data and recipe, trained in float32 by PyTorch on one thread.

The network is read from an ONNX file of convolutions, ReLUs, max-pools, a flatten and dense layers, so it is ours by construction; the
order of the examples and the draws of windows are PyTorch's. Before it trains, its loss on the test split with the first weights must
be ours, so that data, network and weights are the same.
"""
import gzip
import os
import pathlib

import compare_torch
import numpy as np
import onnx
from onnx import numpy_helper

os.environ.update(compare_torch.blas_core())  # read when PyTorch is imported, which is later

FASHION_MEAN, FASHION_DEVIATION = 0.286041, 0.353024


class Network:
    """Made of an ONNX graph; `parameters` are its stored tensors."""

    def __init__(self, path):
        import torch

        graph = onnx.load(str(path)).graph
        self.nodes = [(node.op_type, list(node.input), node.output[0],
                       {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}) for node in graph.node]
        self.stored = {one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer}
        self.stored = {name: value.requires_grad_() for name, value in self.stored.items() if value.is_floating_point()}
        self.input = next(one.name for one in graph.input if one.name not in self.stored)
        self.output = graph.output[0].name
        self.parameters = list(self.stored.values())

    def __call__(self, x):
        import torch.nn.functional as F

        values = {**self.stored, self.input: x}
        for kind, inputs, output, found in self.nodes:
            x = values[inputs[0]]
            if kind == "Conv":
                pads = found.get("pads", [0] * 4)
                if pads[:2] != pads[2:] or found.get("auto_pad", b"NOTSET") != b"NOTSET":
                    raise SystemExit("integers_torch.py: padding of %s is not the same on both sides" % output)
                values[output] = F.conv2d(x, *(values[name] for name in inputs[1:]), stride=found.get("strides", 1), padding=pads[:2],
                                          groups=found.get("group", 1))  # fmt: skip
            elif kind == "Gemm" and found.get("transB", 0) == 1:
                values[output] = F.linear(x, *(values[name] for name in inputs[1:]))
            elif kind == "MaxPool":
                values[output] = F.max_pool2d(x, found["kernel_shape"], found["strides"])
            elif kind == "Relu":
                values[output] = F.relu(x)
            elif kind == "Flatten":
                values[output] = x.flatten(1)
            else:
                raise SystemExit("integers_torch.py: operator %s is not expected" % kind)
        return values[self.output]


def idx(path):
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, -1, 4 + 4 * len(shape)).reshape(shape)


def data_of(series, folder, most):
    """(x, labels) of both splits, normalised as ours are; most examples to train with, 0: all."""
    import torch
    from learning import cifar

    folder = pathlib.Path(folder)
    if series == "vgg11":
        return cifar(folder, most)
    splits = []
    for name, n in (("train", most), ("t10k", 0)):
        x, labels = (idx(folder / "fashion-mnist" / ("%s-%s-ubyte.gz" % (name, kind))) for kind in ("images-idx3", "labels-idx1"))
        n = n or len(x)
        x = torch.from_numpy(x[:n].copy()).float().unsqueeze(1) / 255
        splits.append(((x - FASHION_MEAN) / FASHION_DEVIATION, torch.from_numpy(labels[:n].copy()).long()))
    return splits


def evaluate(network, data, batch=200):
    """Mean loss and share of right answers."""
    import torch
    import torch.nn.functional as F

    x, labels = data
    loss = right = 0.0
    with torch.no_grad():
        for at in range(0, len(x), batch):
            y = network(x[at : at + batch])
            loss += F.cross_entropy(y, labels[at : at + batch], reduction="sum").item()
            right += (y.argmax(1) == labels[at : at + batch]).sum().item()
    return loss / len(x), right / len(x)


def train(series, path, folder, most, epochs, batch, rate, seed, first_loss):
    """Loss and accuracy on the test split after `epochs` of SGD with momentum 0.9, the rate falling to 0 in a line, from the weights of `path`, whose loss is first_loss."""
    import torch
    import torch.nn.functional as F
    from learning import augmented

    torch.set_num_threads(1)
    (x, labels), test = data_of(series, folder, most)
    network = Network(path)
    found = evaluate(network, test)[0]
    if abs(found - first_loss) > 1e-4 * first_loss:
        raise SystemExit("%s, seed %d: first loss on the test split %.6f, ours %.6f: not the same data or network" %
                         (series, seed, found, first_loss))  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters, rate, 0.9)
    n_steps, step = epochs * -(-len(x) // batch), 0
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for at in range(0, len(x), batch):
            part = order[at : at + batch]
            taken = augmented(x[part], generator) if series == "vgg11" else x[part]
            optimizer.param_groups[0]["lr"] = rate * (1.0 - step / n_steps)
            step += 1
            optimizer.zero_grad()
            F.cross_entropy(network(taken), labels[part]).backward()
            optimizer.step()
    return evaluate(network, test)
