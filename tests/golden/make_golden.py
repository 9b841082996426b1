#!/usr/bin/env python3
"""Makes data/{ops,ops_conv,ops_more,nets,ghost}.golden with PyTorch in float64.

Run as `python3 make_golden.py` in this folder; needs PyTorch and NumPy (Debian: python3-torch). The result does not
depend on the machine beyond float64 rounding; the files are committed, so the tests need neither.

Format of a file, little-endian: 8 bytes "DUNLGOLD", u32 number of arrays, then each array:
u8 length of the name, the name, u8 type (1: float32, 5: float64, 3: int32), u8 number of dimensions, u32 each, data.

Names: CASE/PART. For operators PART is x, dy and parameters (float32: what goes in), y, dx and gradients (float64: what
must come out), and each output's `.bound`, the sum over its terms of |a||b|, in units of which errors are measured.
For networks: weights before (float32), examples, labels; the loss of three steps, the gradients of the first and all
weights after the third (float64), and with each its `.error`, what PyTorch's own float32 makes of it: the largest error
over several orders of the examples within their batches, which change nothing but the rounding. ghost.golden is
of a network with batch norm whose gradients are accumulated over slices: statistics are each slice's own. Running
statistics go their part of the way once a step, to the slices' averaged by their examples.
"""
import struct

import numpy as np
import torch
import torch.nn.functional as F

EPS = 1e-5
N_ORDERS = 8
TYPES = {np.dtype("float32"): 1, np.dtype("float64"): 5, np.dtype("int32"): 3}


class File:
    def __init__(self, path):
        self.path, self.arrays = path, []

    def add(self, name, array, dtype):
        if isinstance(array, torch.Tensor):
            array = array.detach().numpy()
        self.arrays.append((name, np.ascontiguousarray(array, dtype=dtype)))

    def write(self):
        with open(self.path, "wb") as out:
            out.write(b"DUNLGOLD" + struct.pack("<I", len(self.arrays)))
            for name, array in self.arrays:
                out.write(struct.pack("<B", len(name)) + name.encode())
                out.write(struct.pack("<BB", TYPES[array.dtype], array.ndim))
                out.write(struct.pack("<%dI" % array.ndim, *array.shape) + array.tobytes())


def draw(*shape, low=-1.0, high=1.0):
    """Uniform float32 numbers, held in float64."""
    return torch.empty(*shape, dtype=torch.float32).uniform_(low, high).double()


def add_case(file, name, inputs, run, bounds):
    """inputs: x and parameters; run(**inputs) -> y; bounds(absolute inputs and |dy|) -> bound of each output."""
    leaves = {key: value.clone().requires_grad_(True) for key, value in inputs.items()}
    y = run(**leaves)
    dy = draw(*y.shape)
    y.backward(dy)
    outputs = {"y": y}
    for key, leaf in leaves.items():
        outputs["d" + key] = leaf.grad
    file.add(name + "/dy", dy, np.float32)
    for key, value in inputs.items():
        file.add(f"{name}/{key}", value, np.float32)
    limits = bounds(dy.abs(), {key: value.abs() for key, value in inputs.items()}, inputs, dy)
    for key, value in outputs.items():
        file.add(f"{name}/{key}", value, np.float64)
        file.add(f"{name}/{key}.bound", limits[key], np.float32)


def by_absolutes(run):
    """For what is linear in every input: the same operator and its gradients on absolute values."""
    def bounds(dy, absolutes, _inputs, _dy):
        leaves = {key: value.clone().requires_grad_(True) for key, value in absolutes.items()}
        y = run(**leaves)
        y.backward(dy)
        return {"y": y, **{"d" + key: leaf.grad for key, leaf in leaves.items()}}
    return bounds


def pad(x, top, left, bottom, right):
    return F.pad(x, (left, right, top, bottom))


def add_linear(file, name, inputs, run):
    add_case(file, name, inputs, run, by_absolutes(run))


def batch_norm(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=EPS)


def batch_norm_bounds(dy, absolutes, inputs, signed_dy):
    x = inputs["x"]
    axes = [i for i in range(x.dim()) if i != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    n = x.numel() / x.shape[1]
    mean = x.mean(axes, keepdim=True)
    inv_std = 1 / torch.sqrt(x.var(axes, unbiased=False, keepdim=True) + EPS)
    spread = (x.abs() + mean.abs()) * inv_std
    gamma = absolutes["weight"].reshape(shape)
    beta = absolutes["bias"].reshape(shape)
    dgamma = (dy * spread).sum(axes, keepdim=True)
    dbeta = dy.sum(axes, keepdim=True)
    return {
        "y": spread * gamma + beta,
        "dx": gamma * inv_std * (dy + dbeta / n + spread * dgamma / n),
        "dweight": dgamma.flatten(),
        "dbias": dbeta.flatten(),
    }


def make_ops(path):
    torch.manual_seed(1)
    file = File(path)
    add_linear(file, "conv", {"x": draw(2, 3, 6, 5), "weight": draw(4, 3, 3, 3), "bias": draw(4)},
               lambda x, weight, bias: F.conv2d(pad(x, 1, 1, 0, 1), weight, bias, stride=(2, 1)))
    add_linear(file, "conv_dilated", {"x": draw(2, 2, 7, 6), "weight": draw(3, 2, 3, 2)},
               lambda x, weight: F.conv2d(pad(x, 2, 0, 1, 1), weight, dilation=(2, 3)))
    add_linear(file, "conv_grouped", {"x": draw(2, 6, 4, 4), "weight": draw(4, 3, 3, 3), "bias": draw(4)},
               lambda x, weight, bias: F.conv2d(x, weight, bias, padding=1, groups=2))
    add_linear(file, "conv_depthwise", {"x": draw(2, 5, 7, 5), "weight": draw(5, 1, 3, 3), "bias": draw(5)},
               lambda x, weight, bias: F.conv2d(x, weight, bias, padding=1, stride=2, groups=5))
    add_linear(file, "dense", {"x": draw(5, 17), "weight": draw(7, 17), "bias": draw(7)},
               lambda x, weight, bias: F.linear(x, weight, bias))
    add_case(file, "batch_norm", {"x": draw(4, 3, 4, 3, low=3.0, high=5.0), "weight": draw(3), "bias": draw(3)},
             batch_norm, batch_norm_bounds)
    add_case(file, "batch_norm_rows", {"x": draw(6, 5), "weight": draw(5), "bias": draw(5)},
             batch_norm, batch_norm_bounds)
    # Selections and sums of the same terms: linear where they act.
    x = draw(2, 3, 4, 5)
    mask = (x > 0).double()
    add_case(file, "relu", {"x": x}, lambda x: F.relu(x),
             lambda dy, a, _i, _d: {"y": a["x"] * mask, "dx": dy * mask})
    x = draw(2, 3, 4, 5, low=-4.0, high=10.0)
    inside = ((x > 0) & (x < 6)).double()
    add_case(file, "relu6", {"x": x}, lambda x: F.relu6(x),
             lambda dy, a, _i, _d: {"y": a["x"].clamp(0, 6), "dx": dy * inside})
    x = draw(2, 3, 7, 6)
    add_max_pool(file, "max_pool", x, dict(kernel_size=3, stride=2, padding=1))
    add_max_pool(file, "max_pool_ceil", x, dict(kernel_size=(2, 3), stride=(2, 2), ceil_mode=True))
    add_linear(file, "average_pool", {"x": x}, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    add_linear(file, "average_pool_padded", {"x": x},
               lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True))
    add_linear(file, "global_average_pool", {"x": x}, lambda x: F.adaptive_avg_pool2d(x, 1))
    file.write()


def add_max_pool(file, name, x, options):
    def bounds(dy, _absolutes, inputs, _dy):
        leaf = inputs["x"].clone().requires_grad_(True)
        y = F.max_pool2d(leaf, **options)
        y.backward(dy)
        return {"y": y.abs(), "dx": leaf.grad}
    add_case(file, name, {"x": x}, lambda x: F.max_pool2d(x, **options), bounds)


def clip_bounds(low, high):
    def bounds(dy, _absolutes, inputs, _dy):
        inside = ((inputs["x"] > low) & (inputs["x"] < high)).double()
        return {"y": inputs["x"].clamp(low, high).abs(), "dx": dy * inside}
    return bounds


def frozen_norm(mean, variance):
    """Batch norm by running statistics, and its bounds."""
    def spread(x):
        return (x - mean.reshape(1, -1, 1, 1)) / torch.sqrt(variance.reshape(1, -1, 1, 1) + EPS)

    def bounds(dy, absolutes, inputs, _dy):
        inv_std = 1 / torch.sqrt(variance.reshape(1, -1, 1, 1) + EPS)
        wide = (inputs["x"].abs() + mean.abs().reshape(1, -1, 1, 1)) * inv_std
        gamma, beta = (absolutes[key].reshape(1, -1, 1, 1) for key in ("weight", "bias"))
        return {"y": wide * gamma + beta, "dx": dy * gamma * inv_std,
                "dweight": (dy * wide).sum((0, 2, 3)), "dbias": dy.sum((0, 2, 3))}

    return lambda x, weight, bias: spread(x) * weight.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1), bounds


def group_norm_bounds(groups):
    def bounds(dy, absolutes, inputs, _dy):
        x = inputs["x"]
        shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
        x = x.reshape(shape)
        axes = (2, 3, 4)
        inv_std = 1 / torch.sqrt(x.var(axes, unbiased=False, keepdim=True) + EPS)
        spread = (x.abs() + x.mean(axes, keepdim=True).abs()) * inv_std
        gamma = absolutes["weight"].reshape(1, groups, -1, 1, 1)
        dxhat = dy.reshape(shape) * gamma
        dx = inv_std * (dxhat + dxhat.mean(axes, keepdim=True) + spread * (dxhat * spread).mean(axes, keepdim=True))
        spread = spread.reshape(dy.shape)
        weight, bias = (absolutes[key].reshape(1, -1, 1, 1) for key in ("weight", "bias"))
        return {"y": spread * weight + bias, "dx": dx.reshape(dy.shape),
                "dweight": (dy * spread).sum((0, 2, 3)), "dbias": dy.sum((0, 2, 3))}
    return bounds


def make_conv_ops(path):
    """More convolutions: more channels than a vector, all attributes at once."""
    torch.manual_seed(3)
    file = File(path)

    def add_conv(name, x, weight, has_bias, pads, **options):
        inputs = {"x": draw(*x), "weight": draw(*weight), **({"bias": draw(weight[0])} if has_bias else {})}
        add_linear(file, name, inputs,
                   lambda x, weight, bias=None: F.conv2d(pad(x, *pads), weight, bias, **options))

    add_conv("conv_odd", (1, 2, 7, 6), (3, 2, 5, 4), True, (2, 1, 1, 3), stride=(3, 2))
    add_conv("conv_everything", (1, 6, 6, 5), (6, 2, 3, 3), True, (1, 2, 2, 1), stride=(1, 2), dilation=(2, 1), groups=3)
    add_conv("conv_pointwise", (1, 5, 3, 4), (17, 5, 1, 1), False, (0, 0, 0, 0))
    add_conv("conv_pointwise_strided", (2, 5, 3, 3), (3, 5, 1, 1), True, (0, 0, 0, 0), stride=2)
    add_conv("conv_wide", (1, 3, 4, 4), (17, 3, 3, 3), False, (1, 1, 1, 1))
    add_conv("depthwise_dilated", (1, 5, 6, 5), (5, 1, 3, 3), False, (2, 2, 2, 2), dilation=2, groups=5)
    add_conv("depthwise_large", (1, 9, 5, 4), (9, 1, 5, 5), True, (2, 2, 2, 2), stride=2, groups=9)
    add_conv("depthwise_multiplied", (1, 3, 4, 4), (6, 1, 3, 3), True, (1, 1, 1, 1), groups=3)
    file.write()


def make_more_ops(path):
    """What the first file leaves out of the others."""
    torch.manual_seed(4)
    file = File(path)
    add_linear(file, "dense_wide", {"x": draw(2, 19), "weight": draw(17, 19)}, lambda x, weight: F.linear(x, weight))
    mean, variance = draw(5), draw(5, low=0.5, high=2.0)
    run, bounds = frozen_norm(mean, variance)
    add_case(file, "batch_norm_frozen", {"x": draw(2, 5, 2, 3), "weight": draw(5), "bias": draw(5)}, run, bounds)
    file.add("batch_norm_frozen/mean", mean, np.float32)
    file.add("batch_norm_frozen/variance", variance, np.float32)
    for name, shape, groups in (("group_norm", (2, 6, 3, 2), 2), ("group_norm_one", (2, 4, 2, 3), 1),
                                ("group_norm_each", (1, 17, 2, 3), 17)):
        inputs = {"x": draw(*shape, low=2.0, high=3.0), "weight": draw(shape[1]), "bias": draw(shape[1])}
        add_case(file, name, inputs, lambda x, weight, bias: F.group_norm(x, groups, weight, bias, EPS),
                 group_norm_bounds(groups))
    add_case(file, "clip", {"x": draw(2, 3, 2, 5)}, lambda x: x.clamp(-0.5, 0.75), clip_bounds(-0.5, 0.75))
    add_linear(file, "average_pool_uneven", {"x": draw(2, 2, 4, 5)},
               lambda x: F.avg_pool2d(pad(x, 1, 0, 0, 1), (2, 3), (2, 1)))
    add_linear(file, "average_pool_repeating", {"x": draw(1, 3, 1, 1)}, lambda x: F.adaptive_avg_pool2d(x, 7))
    add_max_pool(file, "max_pool_small", draw(1, 17, 2, 4), dict(kernel_size=2, stride=2))
    add_linear(file, "add", {"x": draw(2, 3, 3, 4)}, lambda x: x + F.avg_pool2d(x, 3, 1, 1))
    add_linear(file, "concat", {"x": draw(2, 3, 3, 4)}, lambda x: torch.cat([F.avg_pool2d(x, 3, 1, 1), x], 1))
    file.write()


class Lenet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 4, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(4, 6, 5)
        self.fc1 = torch.nn.Linear(24, 12)
        self.fc2 = torch.nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(8)
        self.project = torch.nn.Conv2d(8, 8, 1, bias=False)
        self.bn3 = torch.nn.BatchNorm2d(8)
        self.fc = torch.nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu6(self.bn1(self.conv1(x)))
        y = F.relu6(self.bn2(self.depthwise(x)))
        y = x + self.bn3(self.project(y))
        y = torch.cat([y, x], 1)
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


def norms(model):
    return [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]


def accumulate(model, examples, labels, n_slice):
    """Gradients of a batch's mean loss, slice by slice; returns the loss."""
    batch, total = len(labels), 0.0
    before = [(part.running_mean.clone(), part.running_var.clone()) for part in norms(model)]
    after = [(0.0, 0.0) for _ in before]
    for first in range(0, batch, n_slice):
        own = slice(first, min(first + n_slice, batch))
        loss = F.cross_entropy(model(examples[own]), labels[own], reduction="sum") / batch
        loss.backward()
        total += loss.item()
        share = (own.stop - own.start) / batch
        # At momentum 1 a running statistic is that of the slice.
        after = [(mean + share * part.running_mean, var + share * part.running_var)
                 for (mean, var), part in zip(after, norms(model))]
    for part, (mean, var), (new_mean, new_var) in zip(norms(model), before, after):
        part.running_mean.copy_(0.9 * mean + 0.1 * new_mean)
        part.running_var.copy_(0.9 * var + 0.1 * new_var)
    return total


def train(model, state, dtype, examples, labels, batch, n_slice=None):
    """Three steps of SGD over three batches: losses, first gradients, the state after them."""
    model.load_state_dict(state)
    model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses, gradients = [], None
    for step in range(3):
        part = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        if n_slice is None:
            loss = F.cross_entropy(model(examples[part].to(dtype)), labels[part])
            loss.backward()
            losses.append(loss.item())
        else:
            losses.append(accumulate(model, examples[part].to(dtype), labels[part], n_slice))
        if gradients is None:
            gradients = {name: p.grad.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
    return losses, gradients, {name: value.detach().clone() for name, value in model.state_dict().items()}


def random_order(batch, n_slice):
    """Of the examples of each slice of each batch."""
    length = n_slice or batch
    parts = [(step * batch + first, min(length, batch - first)) for step in range(3) for first in range(0, batch, length)]
    return torch.cat([first + torch.randperm(n) for first, n in parts])


def add_net(file, name, model, shape, batch, scale, n_slice=None):
    for parameter in model.parameters():
        parameter.data.mul_(scale)
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.weight.data.uniform_(0.5, 1.5)
            part.bias.data.uniform_(-0.5, 0.5)
            part.momentum = 0.1 if n_slice is None else 1.0
    state = {key: value.clone() for key, value in model.state_dict().items()}
    examples = draw(3 * batch, *shape).float()
    labels = torch.randint(0, 5, (3 * batch,))
    exact = train(model, state, torch.float64, examples, labels, batch, n_slice)
    rough = []
    for _ in range(N_ORDERS):
        order = random_order(batch, n_slice)
        rough.append(train(model, state, torch.float32, examples[order], labels[order], batch, n_slice))
    file.add(name + "/x", examples, np.float32)
    file.add(name + "/labels", labels, np.int32)
    file.add(name + "/loss", np.array(exact[0]), np.float64)
    file.add(name + "/loss.error", max(np.abs(np.array(exact[0]) - np.array(run[0])).max() for run in rough), np.float64)
    for key in state:
        if key.endswith("num_batches_tracked"):
            continue
        file.add(f"{name}/{key}", state[key], np.float32)
        for label, part in (("gradient", 1), ("after", 2)):
            if key in exact[part]:
                one = exact[part][key]
                error = max((one - run[part][key].double()).abs().max() for run in rough)
                file.add(f"{name}/{key}.{label}", one, np.float64)
                file.add(f"{name}/{key}.{label}.error", error, np.float64)


def make_nets(path):
    torch.manual_seed(2)
    torch.set_num_threads(1)
    file = File(path)
    add_net(file, "lenet", Lenet(), (1, 16, 16), 8, 1.5)
    add_net(file, "residual", Residual(), (3, 9, 8), 6, 1.0)
    file.write()


def make_ghost(path):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    file = File(path)
    add_net(file, "residual", Residual(), (3, 9, 8), 11, 1.0, n_slice=4)
    file.write()


if __name__ == "__main__":
    make_ops("data/ops.golden")
    make_conv_ops("data/ops_conv.golden")
    make_more_ops("data/ops_more.golden")
    make_nets("data/nets.golden")
    make_ghost("data/ghost.golden")
