#!/usr/bin/env python3
"""Makes data/tokens.golden, tokens_more.golden and functions.golden with PyTorch in float64: the operators of
transformers and the functions of one element, forward and gradients.

Run as `python3 make_tokens.py` in this folder; format and names are make_golden.py's. x holds one row a sample, which
the test reshapes; y is a row a sample too. Bounds are sums of |a||b| over the terms of a number, those of a softmax and of
a normalisation multiplied by how much they magnify what goes in.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import File, add_case, add_linear, draw

EPS = 1e-5


def rows(run):
    """run() on rows of the last dimension, a row a sample in and out."""
    return lambda x, **rest: run(x, **rest).flatten(1)


def add_function(file, name, run, low=-3.0, high=3.0, same=None):
    """A function of one operand: an error of the input's size times the slope, and of the output's. `same` is the function
    in words that PyTorch can derive twice."""
    def bounds(dy, absolutes, inputs, _dy):
        x = inputs["x"].clone().requires_grad_(True)
        y = (same or run)(x)
        slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
        bend, = torch.autograd.grad(slope.sum(), x, allow_unused=True)
        bend = torch.zeros_like(x) if bend is None else bend
        size = x.detach().abs()
        return {"y": y.detach().abs() + slope.detach().abs() * size + size,
                "dx": dy * (slope.detach().abs() + bend.abs() * size + 1.0)}
    add_case(file, name, {"x": draw(2, 37, low=low, high=high)}, run, bounds)


def norm_bounds(dy, absolutes, inputs, _dy):
    x = inputs["x"].reshape(*inputs["x"].shape[:1], -1, inputs["weight"].numel())
    dy = dy.reshape(x.shape)
    width = x.shape[-1]
    mean = x.mean(-1, keepdim=True)
    inv_std = 1 / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + EPS)
    spread = (x.abs() + mean.abs()) * inv_std
    gamma = absolutes["weight"]
    g = dy * gamma
    dx = inv_std * (g + g.sum(-1, keepdim=True) / width + spread * (g * spread).sum(-1, keepdim=True) / width)
    return {"y": (spread * gamma + absolutes["bias"]).flatten(1), "dx": dx.flatten(1),
            "dweight": (dy * spread).sum((0, 1)), "dbias": dy.sum((0, 1))}


def softmax_bounds(dy, absolutes, inputs, _dy):
    x = inputs["x"].reshape(inputs["x"].shape[0], -1, 19)
    y = torch.softmax(x, -1)
    dy = dy.reshape(x.shape)
    size = 4 + x.abs().amax(-1, keepdim=True)
    return {"y": (y * size).flatten(1), "dx": (y * size * (dy + (y * dy).sum(-1, keepdim=True))).flatten(1)}


def log_softmax_bounds(dy, absolutes, inputs, _dy):
    x = inputs["x"].reshape(inputs["x"].shape[0], -1, 19)
    dy = dy.reshape(x.shape)
    size = 4 + 2 * x.abs().amax(-1, keepdim=True)
    dx = dy + torch.softmax(x, -1) * size * dy.sum(-1, keepdim=True)
    return {"y": size.expand(x.shape).flatten(1), "dx": dx.flatten(1)}


def attend(x, tokens, heads, mask=None):
    """(n, tokens * 3 * features): q, k and v side by side."""
    n = x.shape[0]
    x = x.reshape(n, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = x[0] @ x[1].transpose(-1, -2) / math.sqrt(x.shape[-1])
    if mask is not None:
        scores = scores + mask
    return (torch.softmax(scores, -1) @ x[2]).transpose(1, 2).reshape(n, -1)


def attention_bounds(tokens, heads):
    def bounds(dy, absolutes, inputs, _dy):
        n = dy.shape[0]
        q, k, v = inputs["x"].reshape(n, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.transpose(-1, -2) * scale, -1)
        # what an error of the scores does to a probability
        size = 4 + (q.abs() @ k.abs().transpose(-1, -2) * scale).amax(-1, keepdim=True)
        d = dy.reshape(n, tokens, heads, -1).transpose(1, 2)
        y = (p * size) @ v.abs()
        dp = d @ v.abs().transpose(-1, -2)
        ds = p * size * (dp + (p * dp).sum(-1, keepdim=True)) * scale
        parts = [ds @ k.abs(), ds.transpose(-1, -2) @ q.abs(), (p * size).transpose(-1, -2) @ d]
        dx = torch.stack(parts).permute(1, 3, 0, 2, 4)
        return {"y": y.transpose(1, 2).reshape(n, -1), "dx": dx.reshape(n, -1)}
    return bounds


def make(path):
    torch.manual_seed(3)
    file = File(path)
    add_function(file, "tanh", torch.tanh)
    add_function(file, "erf", torch.erf)
    add_function(file, "gelu", F.gelu, -6.0, 6.0)
    add_function(file, "sqrt", torch.sqrt, 0.25, 9.0)
    add_function(file, "cube", lambda x: x ** 3)
    norm = {"x": draw(2, 3 * 37), "weight": draw(37), "bias": draw(37)}
    add_case(file, "layer_norm", norm, rows(lambda x, weight, bias: F.layer_norm(
        x.reshape(2, 3, 37), (37,), weight, bias, EPS)), norm_bounds)
    add_case(file, "softmax", {"x": draw(2, 3 * 19, low=-4.0, high=4.0)},
             rows(lambda x: torch.softmax(x.reshape(2, 3, 19), -1)), softmax_bounds)
    add_case(file, "attention", {"x": draw(1, 66 * 3 * 4)}, lambda x: attend(x, 66, 2), attention_bounds(66, 2))
    add_linear(file, "dense_rows", {"x": draw(3, 5 * 7), "weight": draw(9, 7), "bias": draw(9)},
               rows(lambda x, weight, bias: F.linear(x.reshape(3, 5, 7), weight, bias)))
    add_linear(file, "positions", {"x": draw(3, 5 * 7), "weight": draw(5, 7)},
               rows(lambda x, weight: x.reshape(3, 5, 7) + weight))
    add_linear(file, "transpose", {"x": draw(3, 2 * 5 * 7)}, rows(lambda x: x.reshape(3, 2, 5, 7).permute(0, 3, 1, 2)))
    add_linear(file, "mean", {"x": draw(3, 2 * 5 * 7)}, rows(lambda x: x.reshape(3, 2, 5, 7).mean(2)))
    # a tensor's product with itself turned: (rows of 7 tokens) x^T x
    square = draw(2, 7 * 5)

    def square_bounds(dy, absolutes, inputs, _dy):
        x = absolutes["x"].reshape(2, 7, 5)
        dy = dy.reshape(2, 7, 7)
        return {"y": (x @ x.transpose(1, 2)).flatten(1), "dx": ((dy + dy.transpose(1, 2)) @ x).flatten(1)}
    add_case(file, "matmul", {"x": square}, rows(lambda x: x.reshape(2, 7, 5) @ x.reshape(2, 7, 5).transpose(1, 2)),
             square_bounds)
    file.write()


def two(x, op):
    """Elements 0 to 59 as (3, 4, 5) and the last 4 as (4, 1)."""
    return op(x[:, :60].reshape(-1, 3, 4, 5), x[:, 60:].reshape(-1, 1, 4, 1)).flatten(1)


def add_binary(file, name, op, sizes, low=-1.0):
    """op() and what has the size of its errors, both broadcast; none of sizes' terms may cancel on positive numbers."""
    def bounds(dy, absolutes, _inputs, _dy):
        x = absolutes["x"].clone().requires_grad_(True)
        y = two(x, sizes)
        y.backward(dy)
        return {"y": y, "dx": x.grad.abs()}
    add_case(file, name, {"x": draw(2, 64, low=low)}, lambda x: two(x, op), bounds)


def make_more(path):
    torch.manual_seed(4)
    file = File(path)
    add_function(file, "gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), -6.0, 6.0)
    add_case(file, "affine", {"x": draw(2, 37)}, lambda x: 1.5 * x - 0.25,
             lambda dy, absolutes, _inputs, _dy: {"y": 1.5 * absolutes["x"] + 0.25, "dx": 1.5 * dy})
    add_function(file, "inverse", lambda x: 1 / x, 0.25, 3.0)
    add_binary(file, "multiply", torch.mul, torch.mul)
    add_binary(file, "subtract", torch.sub, torch.add)
    add_binary(file, "divide", torch.div, torch.div, 0.25)
    add_linear(file, "slice", {"x": draw(2, 3 * 7 * 4)}, rows(lambda x: x.reshape(2, 3, 7, 4)[:, :, 2:5]))
    add_linear(file, "mean_of_two", {"x": draw(2, 3 * 7 * 4)}, rows(lambda x: x.reshape(2, 3, 7, 4).mean((1, 3))))

    def masked(x):
        return attend(x[:, :72], 6, 2, x[:, 72:].reshape(-1, 1, 1, 6).detach())

    def masked_bounds(dy, absolutes, inputs, signed_dy):
        bounds = attention_bounds(6, 2)(dy, absolutes, {"x": inputs["x"][:, :72]}, signed_dy)
        return {"y": 4 * bounds["y"], "dx": F.pad(4 * bounds["dx"], (0, 6))}
    inputs = draw(3, 78)
    inputs[1, 75:] = -3.4e38
    add_case(file, "attention_masked", {"x": inputs}, masked, masked_bounds)
    tokens = torch.randint(0, 9, (3, 5))
    weight = draw(9, 4).requires_grad_(True)
    y = F.embedding(tokens, weight).flatten(1)
    dy = draw(*y.shape)
    y.backward(dy)
    size, = torch.autograd.grad(F.embedding(tokens, weight).flatten(1), weight, dy.abs())
    for part, value in (("dy", dy), ("x", tokens.double()), ("weight", weight), ("y.bound", y.abs()), ("dweight.bound", size)):
        file.add("embedding/" + part, value.detach(), np.float32)
    for part, value in (("y", y), ("dweight", weight.grad)):
        file.add("embedding/" + part, value, np.float64)
    add_function(file, "sigmoid", torch.sigmoid, -6.0, 6.0)
    add_case(file, "log_softmax", {"x": draw(2, 3 * 19, low=-4.0, high=4.0)},
             rows(lambda x: torch.log_softmax(x.reshape(2, 3, 19), -1)), log_softmax_bounds)
    file.write()


def make_functions(path):
    torch.manual_seed(5)
    file = File(path)
    add_function(file, "silu", lambda x: F.silu(x), -9.0, 9.0)
    add_function(file, "hard_sigmoid", lambda x: F.hardsigmoid(x), -4.0, 4.0, lambda x: F.relu6(x + 3) / 6)
    add_function(file, "hard_swish", lambda x: F.hardswish(x), -4.0, 4.0, lambda x: x * F.relu6(x + 3) / 6)
    add_function(file, "elu", lambda x: F.elu(x, 0.5), -9.0, 9.0)
    add_function(file, "selu", lambda x: F.selu(x), -9.0, 9.0)
    add_function(file, "celu", lambda x: F.celu(x, 2.0), -9.0, 9.0)
    add_function(file, "softplus", lambda x: F.softplus(x), -25.0, 25.0, lambda x: torch.log1p(torch.exp(x)))
    add_function(file, "softsign", lambda x: F.softsign(x), -9.0, 9.0)
    add_function(file, "mish", lambda x: F.mish(x), -25.0, 25.0, lambda x: x * torch.tanh(torch.log1p(torch.exp(x))))
    add_function(file, "abs", lambda x: torch.abs(x), -2.0, 2.0)
    add_function(file, "exp", lambda x: torch.exp(x), -9.0, 9.0)
    add_function(file, "log", lambda x: torch.log(x), 0.01, 9.0)
    add_function(file, "sin", lambda x: torch.sin(x), -20.0, 20.0)
    add_function(file, "cos", lambda x: torch.cos(x), -20.0, 20.0)
    add_function(file, "threshold", lambda x: F.threshold(x, 0.25, 0.0), -2.0, 2.0)
    add_function(file, "root", lambda x: x ** 0.3, 0.01, 9.0)
    add_function(file, "steep", lambda x: x ** -2.75, 0.25, 3.0)
    add_function(file, "ninth", lambda x: x ** 9, -2.0, 2.0)

    def prelu_bounds(dy, absolutes, inputs, _dy):
        x, n_slopes = absolutes["x"], absolutes["weight"].numel()
        share = (dy * x).sum((0, 2, 3))
        return {"y": 4 * x, "dx": 4 * dy, "dweight": share if n_slopes > 1 else share.sum().reshape(1)}
    for name, n_slopes in (("prelu", 5), ("prelu_one", 1)):
        add_case(file, name, {"x": draw(2, 5, 9, 8), "weight": draw(n_slopes)}, lambda x, weight: F.prelu(x, weight),
                 prelu_bounds)
    file.write()


if __name__ == "__main__":
    make("data/tokens.golden")
    make_more("data/tokens_more.golden")
    make_functions("data/functions.golden")
