"""Networks that join images with what is broadcast against them, and that move their elements, as PyTorch exports
them (onnx_nets.py)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx_export import make


class Gates(nn.Module):
    """(x - mean) / std, squeeze and excite, one factor a pixel, and biases that are added by hand."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([0.25, -0.5, 0.125]).reshape(3, 1, 1))
        self.std = nn.Parameter(torch.tensor([0.5, 0.75, 1.25]).reshape(1, 3, 1, 1))
        self.conv = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bias = nn.Parameter(torch.linspace(-0.3, 0.4, 6).reshape(1, 6, 1, 1))
        self.squeeze = nn.Conv2d(6, 2, 1)
        self.excite = nn.Conv2d(2, 6, 1)
        self.look = nn.Conv2d(6, 1, 1)
        self.place = nn.Parameter(torch.linspace(-0.5, 0.5, 20).reshape(1, 1, 4, 5))
        self.end = nn.Conv2d(6, 4, 3, bias=False)
        self.end_bias = nn.Parameter(torch.linspace(-0.2, 0.2, 4).reshape(4, 1, 1))
        self.fc = nn.Linear(24, 3)

    def forward(self, x):
        x = (x - self.mean) / self.std
        x = torch.tanh(self.conv(x) + self.bias)
        gate = torch.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        x = torch.sigmoid(self.excite(gate)) * x
        x = x * torch.sigmoid(self.look(x)) + self.place
        return self.fc(torch.flatten(self.end(x) + self.end_bias, 1))


class Shuffle(nn.Module):
    """ShuffleNet's unit: halves of the channels, joined and shuffled."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1)
        self.right = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.last = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(8, 3)

    def shuffle(self, x, groups):
        n, c, h, w = x.shape
        x = x.view(n, groups, c // groups, h, w)
        return torch.transpose(x, 1, 2).contiguous().view(n, c, h, w)

    def forward(self, x):
        x = self.shuffle(self.stem(x), 2)
        left, right = x.chunk(2, dim=1)
        x = self.shuffle(torch.cat((left, torch.tanh(self.right(right))), dim=1), 4)
        left, right = x.chunk(2, dim=1)
        x = self.shuffle(torch.cat((torch.tanh(self.last(right)), left), dim=1), 2)
        return self.fc(x.mean([2, 3]))


class Permuted(nn.Module):
    """ConvNeXt's block, with layer norm and dense layers over (H, W, C) and a factor a channel; then dense layers over
    the pixels of each channel."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 2, stride=2)
        self.depth = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.LayerNorm(6)
        self.wide = nn.Linear(6, 10)
        self.back = nn.Linear(10, 6)
        self.scale = nn.Parameter(torch.linspace(0.1, 0.9, 6).reshape(6, 1, 1))
        self.inner = nn.Parameter(torch.linspace(-0.4, 0.9, 6))
        self.mix = nn.Linear(12, 5)
        self.fc = nn.Linear(30, 3)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.back(torch.tanh(self.wide(y))) * self.inner
        x = x + self.scale * y.permute(0, 3, 1, 2)
        return self.fc(torch.tanh(self.mix(x.flatten(2))).flatten(1))


class Pieces(nn.Module):
    """Blocks of pixels as channels and back, parts and joints of images along every dimension, rows out of an image
    and an image out of rows."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.deep = nn.Conv2d(16, 8, 1)
        self.rows = nn.Linear(24, 24)
        self.fc = nn.Linear(2 * 8 * 12, 3)

    def forward(self, x):
        n = x.shape[0]
        x = torch.tanh(self.stem(x))
        x = torch.tanh(self.deep(F.pixel_unshuffle(x, 2)))
        x = torch.cat((x[:, :, 1:, :], x[:, :, :1, :] * 0.5), 2)
        x = torch.cat((x[:, :, :, 2:], x[:, :, :, :2] * 0.25), -1)
        first, second = x.split([2, 6], 1)
        x = torch.cat((second, first), 1)
        x = x.permute(0, 1, 3, 2).reshape(n, 8, 24)
        x = torch.tanh(self.rows(x)).reshape(n, 8, 6, 4).transpose(2, 3)
        x = F.pixel_shuffle(x, 2)
        return self.fc(x.reshape(n, -1))


class Reduced(nn.Module):
    """Sums, extremes with ties (amax shares their gradient evenly), norms, and x / |x|; of images and of rows."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.wide = nn.Linear(6 * 4 + 6 + 5 + 4 + 20 + 6, 8)
        self.fc = nn.Linear(9, 3)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        parts = [x.amax(3), x.amin((2, 3)), x.sum((1, 2)), x.norm(1, (1, 3)), torch.logsumexp(x, 1),
                 F.normalize(x + 0.1, dim=1).mean(2).amax(2)]
        x = F.normalize(torch.tanh(self.wide(torch.cat([part.flatten(1) for part in parts], 1))))
        return self.fc(torch.cat((x, x.norm(2, 1, keepdim=True) + x.pow(2).sum(1, keepdim=True)), 1))


class ChannelNorm(nn.Module):
    """Layer norm over the channels of an image as people write it, stored rows in the shape of one; a product with
    factors."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.bias = nn.Parameter(torch.linspace(-0.5, 0.25, 6))
        self.gain = nn.Parameter(torch.linspace(0.25, 1.25, 6))
        self.mid = nn.Parameter(torch.randn(8, 6) * 0.4)
        self.shift = nn.Parameter(torch.randn(1, 8) * 0.3)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv(x)
        x = x - x.mean(1, keepdim=True)
        x = x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)
        x = self.weight[:, None, None] * x + self.bias[:, None, None]
        x = (x * self.gain.view(1, -1, 1, 1)).mean((2, 3))
        x = torch.addmm(self.shift, x, self.mid.t(), beta=0.5, alpha=1.5)
        return self.fc(torch.tanh(x))


class ChannelsLast(nn.Module):
    """Images as (N, H, W, C), as converters from TensorFlow leave them: turned before and after each convolution."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        self.second = nn.Conv2d(5, 4, 3, bias=False)
        self.first_bias = nn.Parameter(torch.linspace(-0.3, 0.4, 5))
        self.second_bias = nn.Parameter(torch.linspace(-0.3, 0.4, 4))
        self.fc = nn.Linear(2 * 3 * 4, 3)

    def forward(self, x):
        x = self.first(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = torch.tanh(x + self.first_bias)
        x = self.second(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.fc((x + self.second_bias).flatten(1))


def make_moves(folder):
    torch.manual_seed(3)
    make(Gates(), (torch.randn(3, 3, 4, 5),), 3, folder, 'gates', 17)
    make(Shuffle(), (torch.randn(3, 2, 4, 3),), 3, folder, 'shuffle', 17)
    make(Permuted(), (torch.randn(3, 2, 6, 8),), 3, folder, 'permuted', 17)
    make(Pieces(), (torch.randn(3, 2, 8, 12),), 3, folder, 'pieces', 17)
    make(ChannelsLast(), (torch.randn(3, 4, 5, 3),), 3, folder, 'channels_last', 17)
    make(Reduced(), (torch.randn(3, 2, 4, 5),), 3, folder, 'reduced', 17)
    make(ChannelNorm(), (torch.randn(3, 2, 4, 5),), 3, folder, 'channel_norm', 17)
