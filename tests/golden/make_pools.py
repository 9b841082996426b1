#!/usr/bin/env python3
"""Makes data/pools.golden with PyTorch in float64: pooling, norms of windows and across channels, extremes of two values.

Run as `python3 make_pools.py` in this folder; names and bounds are those of make_golden.py.
"""
import torch
import torch.nn.functional as F
from make_golden import File, add_case, add_linear, add_max_pool, draw


def lp_pool(x, p, kernel, stride):
    """F.lp_pool2d of |x|: PyTorch leaves signs alone, ONNX does not."""
    return F.lp_pool2d(x.abs(), p, kernel, stride)


def by_size(run):
    """Bounds for what is smooth and of which all terms have the size of the results: with room for the powers."""
    def bounds(_dy, _absolutes, inputs, dy):
        leaf = inputs['x'].clone().requires_grad_(True)
        y = run(leaf)
        y.backward(dy.abs())
        return {'y': 4 * y.abs(), 'dx': 8 * leaf.grad.abs()}
    return bounds


def norm_bounds(size, alpha, beta, k):
    def bounds(dy, absolutes, _inputs, _dy):
        x = absolutes['x']
        squares = F.avg_pool3d(F.pad((x * x)[:, None], (0, 0, 0, 0, size // 2, size // 2)), (size, 1, 1), 1)[:, 0]
        s = k + alpha * squares
        share = dy * x * s ** (-beta - 1)
        shares = F.avg_pool3d(F.pad(share[:, None], (0, 0, 0, 0, size // 2, size // 2)), (size, 1, 1), 1)[:, 0]
        return {'y': 4 * x * s ** -beta, 'dx': 8 * (dy * s ** -beta + 2 * alpha * beta * x * shares)}
    return bounds


def make(path):
    torch.manual_seed(6)
    file = File(path)
    x = draw(2, 3, 9, 8)
    add_max_pool(file, 'max_pool_dilated', x, dict(kernel_size=3, stride=2, padding=1, dilation=2))
    add_max_pool(file, 'max_pool_dilated_ceil', x, dict(kernel_size=(2, 3), stride=(3, 2), dilation=(3, 2), ceil_mode=True))
    add_max_pool(file, 'max_pool_ceil_padded', draw(2, 3, 5, 5), dict(kernel_size=2, stride=3, padding=1, ceil_mode=True))
    for name, ceil, counted in (('counted', True, True), ('uncounted', True, False), ('floor', False, True)):
        add_linear(file, 'average_pool_' + name, {'x': x},
                   lambda x: F.avg_pool2d(x, 4, 3, 2, ceil_mode=ceil, count_include_pad=counted))
    # The last window would begin in the padding: it is dropped.
    add_linear(file, 'average_pool_dropped', {'x': draw(2, 2, 5, 5)},
               lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True, count_include_pad=True))
    for p in (1, 2, 3):
        x = draw(2, 3, 6, 7, low=0.1, high=1.0) * torch.sign(draw(2, 3, 6, 7))
        run = lambda x: lp_pool(x, float(p), (3, 2), (2, 1))
        add_case(file, 'lp_pool%d' % p, {'x': x}, run, by_size(run))
    for name, size, alpha, beta, k in (('response_norm', 5, 2.0, 0.75, 1.0), ('response_norm_wide', 9, 3.0, 0.5, 2.0)):
        add_case(file, name, {'x': draw(2, 6, 3, 4, low=-2.0, high=2.0)},
                 lambda x: F.local_response_norm(x, size, alpha, beta, k), norm_bounds(size, alpha, beta, k))
    # One number a channel on the other side; and values that tie, whose gradient is shared.
    x = (draw(2, 3, 4, 5) * 4).round() / 4
    for name, fn in (('larger', torch.maximum), ('smaller', torch.minimum)):
        add_case(file, name, {'x': x}, lambda x: fn(x, torch.zeros_like(x) + x.mean((2, 3), keepdim=True)),
                 lambda dy, a, _i, _d: {'y': a['x'] + 1, 'dx': dy + dy.sum((2, 3), keepdim=True)})
        add_case(file, name + '_tied', {'x': x}, lambda x: fn(x, F.max_pool2d(x, 1)),
                 lambda dy, a, _i, _d: {'y': a['x'], 'dx': dy})
    file.write()


if __name__ == '__main__':
    make('data/pools.golden')
