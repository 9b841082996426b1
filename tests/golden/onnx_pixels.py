"""Networks whose output is an image, and what makes images larger, as ONNX files (onnx_nets.py)."""
import os

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import helper, numpy_helper
from onnx_export import expect, export, make


def double(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU())


class UNet(nn.Module):
    """Transposed convolutions on the way up; a row of logits for each pixel."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.low = double(2, 4), double(4, 6), double(6, 8)
        self.up2, self.up1 = nn.ConvTranspose2d(8, 6, 2, 2), nn.ConvTranspose2d(6, 4, 3, 2, 1, 1)
        self.join2, self.join1 = double(12, 6), double(8, 4)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        low = self.low(F.max_pool2d(second, 2))
        x = self.join2(torch.cat([second, self.up2(low)], 1))
        return self.head(self.join1(torch.cat([first, self.up1(x)], 1)))


class FCN(nn.Module):
    """To the size of the input, which is asked of it; by factors; with the corners aligned."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(2, 5, 3, 2, 1), nn.Conv2d(5, 6, 3, 2, 1), nn.Conv2d(16, 3, 1)

    def forward(self, x):
        a = F.relu(self.first(x))
        b = F.relu(self.second(a))
        near = F.interpolate(b, scale_factor=2)
        parts = [F.interpolate(a + near[:, :5], size=x.shape[-2:], mode='bilinear', align_corners=False),
                 F.interpolate(near, scale_factor=(2.0, 2.0), mode='bilinear', align_corners=True),
                 F.interpolate(a, size=x.shape[2:])]
        return self.head(torch.cat(parts, 1))


class Signals(nn.Module):
    """An encoder and a decoder of signals, and one row of all of it."""

    def __init__(self):
        super().__init__()
        self.conv, self.up = nn.Conv1d(2, 4, 3, 2, 1), nn.ConvTranspose1d(4, 3, 4, 2, 1)
        self.fc = nn.Linear(3 * 21, 3)

    def forward(self, x):
        x = torch.tanh(self.up(torch.tanh(self.conv(x))))
        return self.fc(F.interpolate(x, size=21, mode='linear', align_corners=False).flatten(1))


class Older(nn.Module):
    """What is Upsample until opset 9, and Resize with other rules in opset 10."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 3, 3, 2, 1), nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(torch.tanh(F.interpolate(self.conv(x), scale_factor=2.0)).mean((2, 3)))


def make_rows(model, inputs, labels, folder, name, opset):
    model.train()
    names = export(model, inputs, os.path.join(folder, name + '.onnx'), opset)
    expect(model, inputs, labels, names, os.path.join(folder, name + '.expect'), 3, 0.05)


def write_one(folder, name, op, inputs, opset=18, **attributes):
    """A file of a convolution and one operator behind it."""
    weights = [numpy_helper.from_array(np.full(shape, 0.1, 'float32'), key)
               for key, shape in (('w', (3, 2, 1, 1)), ('v', (3, 2, 2, 2)))]
    constants = {'twice': [1, 1, 2, 2], 'half': [1, 1, 0.5, 0.5], 'wide': [1, 2, 2, 2], 'none': [1, 1, 0, 2],
                 'short': [1, 2, 2], 'batch': [2, 1, 2, 2]}
    weights += [numpy_helper.from_array(np.array(v, 'float32'), k) for k, v in constants.items()]
    weights += [numpy_helper.from_array(np.array([1, 3, 0, 8], 'int64'), 'empty')]
    node = helper.make_node
    nodes = [node('Conv', ['x', 'w'], ['c'], name='conv'), node(op, inputs, ['y'], name='up', **attributes)]
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info('x', 1, ['N', 2, 4, 4])],
                              [helper.make_tensor_value_info('y', 1, None)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=8),
              os.path.join(folder, name + '.onnx'))


def write_refused(folder):
    def resize(name, scales, **attributes):
        write_one(folder, 'resize_' + name, 'Resize', ['c', '', scales], **attributes)

    resize('cubic', 'twice', mode='cubic')
    resize('crop', 'twice', coordinate_transformation_mode='tf_crop_and_resize')
    resize('channels', 'wide')
    resize('batch', 'batch')
    resize('nothing', 'none')
    resize('short', 'short')
    resize('smooth', 'half', mode='linear', antialias=1)
    resize('aspect', 'twice', keep_aspect_ratio_policy='not_larger')
    resize('axes', 'twice', axes=[0, 1, 2, 7])
    resize('rounding', 'twice', nearest_mode='odd')
    write_one(folder, 'resize_sizes', 'Resize', ['c', '', '', 'empty'])
    up = ['c', 'v']
    write_one(folder, 'transposed_more', 'ConvTranspose', up, strides=[2, 2], output_padding=[2, 0])
    write_one(folder, 'transposed_shape', 'ConvTranspose', up, strides=[2, 2], output_shape=[9, 8])
    write_one(folder, 'transposed_auto', 'ConvTranspose', up, auto_pad='SAME')
    write_one(folder, 'transposed_gone', 'ConvTranspose', up, pads=[3, 0, 3, 0])
    # What is said by other words, and trained.
    write_one(folder, 'transposed_same', 'ConvTranspose', up, strides=[2, 3], auto_pad='SAME_LOWER', output_padding=[0, 2])
    write_one(folder, 'transposed_sized', 'ConvTranspose', up, strides=[2, 2], output_shape=[7, 8])
    write_one(folder, 'resize_tf', 'Resize', ['c', 'twice', 'twice'], 11, nearest_mode='floor',
              coordinate_transformation_mode='tf_half_pixel_for_nn')


def make_pixels(folder):
    write_refused(folder)
    torch.manual_seed(14)
    make_rows(UNet(), (torch.randn(4, 2, 8, 12),), torch.randint(3, (4, 8, 12)), folder, 'pixels_unet', 17)
    make_rows(FCN(), (torch.randn(3, 2, 8, 12),), torch.randint(3, (3, 8, 12)), folder, 'pixels_fcn', 17)
    make_rows(FCN(), (torch.randn(3, 2, 8, 12),), torch.randint(3, (3, 8, 12)), folder, 'pixels_fcn11', 11)
    make(Signals(), (torch.randn(4, 2, 12),), 3, folder, 'pixels_signals', 17)
    for opset in (9, 10, 11):
        make(Older(), (torch.randn(4, 2, 7, 6),), 3, folder, 'upsampled%d' % opset, opset)
