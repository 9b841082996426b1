#!/usr/bin/env python3
"""Makes data/pixels.golden with PyTorch in float64: transposed convolutions, images of another size.

Run as `python3 make_pixels.py` in this folder; names and bounds are those of make_golden.py.
"""
import torch
import torch.nn.functional as F
from make_golden import File, add_linear, draw


def make(path):
    torch.manual_seed(12)
    file = File(path)
    add_linear(file, 'conv_transposed', {'x': draw(2, 3, 4, 5), 'weight': draw(3, 4, 3, 2), 'bias': draw(4)},
               lambda x, weight, bias: F.conv_transpose2d(x, weight, bias, (2, 1), (1, 0), (1, 0)))
    add_linear(file, 'conv_transposed_twice', {'x': draw(2, 5, 3, 3), 'weight': draw(5, 3, 2, 2), 'bias': draw(3)},
               lambda x, weight, bias: F.conv_transpose2d(x, weight, bias, 2))
    add_linear(file, 'conv_transposed_grouped', {'x': draw(2, 4, 3, 4), 'weight': draw(4, 3, 2, 3)},
               lambda x, weight: F.conv_transpose2d(x, weight, None, (3, 2), 0, (2, 1), 2, (2, 3)))
    x = draw(2, 3, 5, 6)
    for name, how in (('nearest', dict(size=(10, 9))), ('nearest_by', dict(scale_factor=(1.7, 0.6))),
                      ('linear', dict(size=(7, 12), mode='bilinear')),
                      ('linear_less', dict(size=(3, 2), mode='bilinear')),
                      ('linear_by', dict(scale_factor=(1.5, 0.7), mode='bilinear', recompute_scale_factor=False)),
                      ('aligned', dict(size=(8, 11), mode='bilinear', align_corners=True)),
                      ('aligned_one', dict(size=(1, 3), mode='bilinear', align_corners=True))):
        add_linear(file, 'resize_' + name, {'x': x}, lambda x: F.interpolate(x, **how))
    file.write()


if __name__ == '__main__':
    make('data/pixels.golden')
