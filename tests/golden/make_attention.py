#!/usr/bin/env python3
"""Makes data/attention.golden with PyTorch in float64: attention that looks back only, with heads that share keys and
values, and with a mask that all samples share; forward and gradients.

Run as `python3 make_attention.py` in this folder; format and names are make_golden.py's, bounds as make_tokens.py's. `fixed`
is the mask, a parameter that is never trained.
"""
import math

import numpy as np
import torch
from make_golden import File, draw


class Case:
    """q, k and v side by side in a row of (tokens, (heads + 2 kv_heads) * width)."""

    def __init__(self, n, tokens, heads, kv_heads, width, is_causal=False, fixed=None, base=0):
        self.n, self.tokens, self.heads, self.kv_heads, self.width = n, tokens, heads, kv_heads, width
        self.fixed = fixed
        self.tables = None
        if base:  # rotary positions (Su et al. 2021), as float32 tables
            angles = torch.arange(tokens)[:, None] * base ** -(torch.arange(0, width, 2) / width)[None].double()
            angles = torch.cat([angles, angles], 1)
            self.tables = [table.float().double() for table in (angles.cos(), angles.sin())]
        self.mask = torch.zeros(heads, tokens, tokens, dtype=torch.float64)
        if fixed is not None:
            self.mask = self.mask + fixed.reshape(fixed.shape[0] if fixed.dim() == 3 else 1, -1, tokens)
        if is_causal:
            self.mask = self.mask + torch.triu(torch.full((tokens, tokens), -math.inf, dtype=torch.float64), 1)

    def parts(self, x):
        """(n, heads, tokens, width) each, shared heads once for each that reads them."""
        sizes = [count * self.width for count in (self.heads, self.kv_heads, self.kv_heads)]
        made = []
        for part in x.reshape(x.shape[0], self.tokens, -1).split(sizes, -1):
            part = part.reshape(x.shape[0], self.tokens, -1, self.width).transpose(1, 2)
            made.append(part.repeat_interleave(self.heads // part.shape[1], 1))
        return made

    def turn(self, x, is_bound=False):
        """`is_bound`: what has the size of its errors."""
        if self.tables is None:
            return x
        half = x.shape[-1] // 2
        cosines, sines = self.tables
        if is_bound:
            return x * cosines.abs() + x.roll(half, -1) * sines.abs()
        return x * cosines + torch.cat([-x[..., half:], x[..., :half]], -1) * sines

    def run(self, x):
        q, k, v = self.parts(x)
        q, k = self.turn(q), self.turn(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.width) + self.mask
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape[0], -1)

    def join(self, q, k, v):
        """The reverse: copies added up."""
        rows = []
        for part, heads in ((q, self.heads), (k, self.kv_heads), (v, self.kv_heads)):
            part = part.reshape(part.shape[0], heads, -1, self.tokens, self.width).sum(2)
            rows.append(part.transpose(1, 2).reshape(part.shape[0], self.tokens, -1))
        return torch.cat(rows, -1).flatten(1)

    def bounds(self, dy, x):
        q, k, v = self.parts(x)
        scale = 1 / math.sqrt(self.width)
        q, k, q_size, k_size = self.turn(q), self.turn(k), self.turn(q.abs(), True), self.turn(k.abs(), True)
        p = torch.softmax(q @ k.transpose(-1, -2) * scale + self.mask, -1)
        # what an error of the scores does to a probability
        added = torch.where(torch.isfinite(self.mask), self.mask.abs(), torch.zeros(()).double())
        size = 4 + (q_size @ k_size.transpose(-1, -2) * scale + added).amax(-1, keepdim=True)
        d = dy.reshape(dy.shape[0], self.tokens, self.heads, -1).transpose(1, 2)
        dp = d @ v.abs().transpose(-1, -2)
        ds = p * size * (dp + (p * dp).sum(-1, keepdim=True)) * scale
        dq, dk = self.turn(ds @ k_size, True), self.turn(ds.transpose(-1, -2) @ q_size, True)
        dx = self.join(dq, dk, (p * size).transpose(-1, -2) @ d)
        return ((p * size) @ v.abs()).transpose(1, 2).reshape(dy.shape[0], -1), dx


def add(file, name, case):
    columns = (case.heads + 2 * case.kv_heads) * case.width
    x = draw(case.n, case.tokens * columns, low=-2.0, high=2.0).requires_grad_(True)
    y = case.run(x)
    dy = draw(*y.shape)
    y.backward(dy)
    y_bound, dx_bound = case.bounds(dy.abs(), x.detach())
    arrays = [("dy", dy, np.float32), ("x", x, np.float32), ("y", y, np.float64), ("y.bound", y_bound, np.float32),
              ("dx", x.grad, np.float64), ("dx.bound", dx_bound, np.float32)]
    if case.tables is not None:
        arrays += [('cos', case.tables[0], np.float32), ('sin', case.tables[1], np.float32)]
    if case.fixed is not None:
        arrays.append(("fixed", case.fixed, np.float32))
    for part, value, dtype in arrays:
        file.add(name + "/" + part, value, dtype)


if __name__ == "__main__":
    torch.manual_seed(6)
    FILE = File("data/attention.golden")
    # A block of queries has 48: two whole ones and a part, one, and less than one.
    add(FILE, "causal", Case(1, 100, 2, 2, 2, is_causal=True))
    add(FILE, "causal_block", Case(2, 48, 1, 1, 3, is_causal=True))
    add(FILE, "causal_few", Case(3, 5, 3, 3, 2, is_causal=True))
    add(FILE, "shared_keys", Case(2, 7, 6, 2, 3))
    add(FILE, "shared_causal", Case(1, 50, 4, 1, 2, is_causal=True))
    add(FILE, "fixed_keys", Case(2, 6, 2, 2, 3, fixed=draw(6, low=-2.0, high=2.0)))
    add(FILE, "fixed_rows", Case(2, 6, 2, 2, 3, fixed=draw(6, 6, low=-2.0, high=2.0)))
    # Each head its own, as linear biases are (Press et al. 2022).
    add(FILE, "fixed_heads", Case(2, 9, 4, 2, 2, is_causal=True, fixed=draw(4, 9, 9, low=-2.0, high=2.0)))
    add(FILE, "rotary", Case(1, 20, 4, 2, 6, is_causal=True, base=100.0))
    FILE.write()
