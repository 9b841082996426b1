#!/usr/bin/env python3
"""Makes onnx/several.onnx and onnx/several.losses: a network with two images, numbers and ids, of which the
images go through one convolution, and with two outputs that have a loss each; and the losses of six steps of SGD
(rate 0.05, batches of 4 of 8 examples in order) in PyTorch in float64: the weighted sum, then each output's.

Run as `python3 onnx_several.py` in this folder. Values follow from sines, as in tests/unit/net/test_onnx_several.c.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.table = nn.Embedding(7, 3)
        self.mix = nn.Linear(4 * 4 * 4 + 3 + 2, 6)
        self.label = nn.Linear(6, 3)
        self.number = nn.Linear(6, 2)

    def forward(self, left, right, extra, word):
        left, right = (torch.tanh(F.avg_pool2d(self.conv(x), 2)) for x in (left, right))
        x = torch.cat((torch.flatten(left * right, 1), self.table(word).mean(1), extra), 1)
        x = torch.tanh(self.mix(x))
        return torch.softmax(self.label(x), 1), self.number(x)


def wave(n, *shape, a):
    count = math.prod(shape)
    return torch.tensor([[math.sin(0.9 * i + 0.37 * k + a) for k in range(count)] for i in range(n)]).reshape(n, *shape)


def main():
    torch.manual_seed(3)
    net = Several()
    x = [wave(8, 2, 8, 8, a=0.1), wave(8, 2, 8, 8, a=1.3), wave(8, 2, a=2.0)]
    word = torch.tensor([[(i * 3 + k * 2) % 7 for k in range(4)] for i in range(8)])
    label = torch.tensor([i % 3 for i in range(8)])
    number = wave(8, 2, a=0.7)
    torch.onnx.export(net, (x[0][:2], x[1][:2], x[2][:2], word[:2]), 'onnx/several.onnx', opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=['left', 'right', 'extra', 'word'], output_names=['label', 'number'],
                      dynamic_axes={n: {0: 'N'} for n in ('left', 'right', 'extra', 'word', 'label', 'number')})
    net = net.double()
    x = [v.double() for v in x]
    number = number.double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with open('onnx/several.losses', 'w') as out:
        for step in range(6):
            at = slice(step % 2 * 4, step % 2 * 4 + 4)
            shares, values = net(x[0][at], x[1][at], x[2][at], word[at])
            each = [F.nll_loss(torch.log(shares), label[at]), F.mse_loss(values, number[at])]
            loss = each[0] + 0.25 * each[1]
            out.write(f'{loss.item():.12f} {each[0].item():.12f} {each[1].item():.12f}\n')
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
