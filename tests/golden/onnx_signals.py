"""Networks over signals (N, C, L) as PyTorch exports them (onnx_nets.py)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx_export import make


class Sensors(nn.Module):
    """Convolutions with batch norm and pooling over raw signals, a depthwise one, a residual sum, a mean over time."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 5, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(6)
        self.depth = nn.Conv1d(6, 6, 3, padding=1, groups=6)
        self.point = nn.Conv1d(6, 8, 1)
        self.last = nn.Conv1d(8, 8, 3, stride=2, groups=2)
        self.late = nn.BatchNorm1d(8)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool1d(torch.tanh(self.norm(self.conv(x))), 2)
        x = F.avg_pool1d(self.point(x + self.depth(x)), 3, stride=1, padding=1)
        x = torch.tanh(self.late(self.last(x)))
        return self.fc(torch.cat([x.mean(2), F.adaptive_avg_pool1d(x, 1).flatten(1)], 1))


class Words(nn.Module):
    """Token ids, a table, convolutions of several widths over time, the largest of each over time."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(23, 6)
        self.convs = nn.ModuleList([nn.Conv1d(6, 4, width) for width in (2, 3)])
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.table(x).transpose(1, 2)
        x = [torch.tanh(conv(x)) for conv in self.convs]
        return self.fc(torch.cat([F.max_pool1d(each, int(each.shape[2])).squeeze(2) for each in x], 1))


class Causal(nn.Module):
    """A temporal network: dilated convolutions whose end is cut off, norms of groups, the last moment, flattened
    rows."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(2, 6, 3, padding=2)
        self.second = nn.Conv1d(6, 6, 3, padding=4, dilation=2)
        self.norm = nn.GroupNorm(2, 6)
        self.each = nn.InstanceNorm1d(6, affine=True)
        self.rows = nn.Linear(6, 5)
        self.fc = nn.Linear(45, 3)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)[:, :, :-2]))
        x = x + torch.tanh(self.each(self.second(x)[:, :, :-4]))
        x = torch.tanh(self.rows(x.transpose(1, 2)))
        return self.fc(x.transpose(1, 2).flatten(1))


class Pads(nn.Module):
    """Padding in all modes, some of which a convolution or an average takes over."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3)
        self.second = nn.Conv2d(4, 4, 3, padding=1, padding_mode='reflect')
        self.third = nn.Conv2d(4, 3, 3, padding=1, padding_mode='replicate')
        self.fc = nn.Linear(3 * 6 * 6, 3)

    def forward(self, x):
        x = torch.tanh(self.first(F.pad(x, (2, 0, 1, 1))))
        x = F.avg_pool2d(self.second(x), 3, stride=1, padding=1)
        x = F.pad(torch.tanh(self.third(x)), (1, -1, 0, 1), value=0.5)
        return self.fc(x.flatten(1))


class PadsOfSignals(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(3, 4, 3)
        self.second = nn.Conv1d(4, 4, 3, dilation=2)
        self.fc = nn.Linear(4 * 9, 3)

    def forward(self, x):
        x = torch.tanh(self.first(F.pad(x, (2, 0))))
        x = torch.tanh(self.second(F.pad(x, (4, 0), mode='replicate')))
        return self.fc(x.flatten(1))


def make_signals(folder):
    torch.manual_seed(9)
    make(Sensors(), (torch.randn(4, 3, 16),), 4, folder, 'signal_sensors', 17, n_steps=5)
    make(Words(), (torch.randint(0, 23, (4, 9)),), 3, folder, 'signal_words', 17)
    make(Causal(), (torch.randn(4, 2, 9),), 3, folder, 'signal_causal', 17)
    make(Pads(), (torch.randn(4, 2, 5, 6),), 3, folder, 'pads', 17)
    make(PadsOfSignals(), (torch.randn(4, 3, 9),), 3, folder, 'pads_signals', 17)
