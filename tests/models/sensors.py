"""Networks for sound and sensors, and small ones for features and images, as people write them in PyTorch."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(inputs, outputs, kernel, **options):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, bias=False, **options), nn.BatchNorm2d(outputs), nn.ReLU())


class DsCnn(nn.Module):
    """Keyword spotting over 49 x 10 cepstral coefficients (Zhang, Suda, Lai, Chandra 2017), small."""

    def __init__(self, classes=12, width=64, blocks=4):
        super().__init__()
        self.stem = conv_bn(1, width, (10, 4), stride=2, padding=(5, 1))
        self.blocks = nn.Sequential(*[nn.Sequential(conv_bn(width, width, 3, padding=1, groups=width), conv_bn(width, width, 1))
                                      for _ in range(blocks)])  # fmt: skip
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Autoencoder(nn.Sequential):
    """DCASE's anomaly detection over five frames of 128 bands: dense layers with batch norm, narrow in the middle."""

    def __init__(self, features=640, width=128, narrow=8):
        sizes = [features] + [width] * 4 + [narrow] + [width] * 4
        layers = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        super().__init__(*layers, nn.Linear(width, features))


def mlp(activation, norm=True):
    parts = [nn.Linear(32, 64), nn.LayerNorm(64) if norm else nn.Identity(), activation, nn.Dropout(0.1), nn.Linear(64, 64),
             activation, nn.Linear(64, 6)]  # fmt: skip
    return nn.Sequential(*parts)


class Gated(nn.Module):
    """An MLP whose halves gate each other."""

    def __init__(self):
        super().__init__()
        self.wide, self.head = nn.Linear(32, 128), nn.Linear(64, 6)

    def forward(self, x):
        a, b = self.wide(x).chunk(2, 1)
        return self.head(a * torch.sigmoid(b))


class Siamese(nn.Module):
    """One tower for both halves of the input."""

    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        a, b = self.tower(x[:, :16]), self.tower(x[:, 16:])
        return self.head(torch.abs(a - b))


class Shared(nn.Module):
    """One linear layer, used twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 6)

    def forward(self, x):
        return self.b(torch.relu(self.a(torch.relu(self.a(x)))))


def conv1d_net(channels=6, classes=6, norm=True):
    """Activity recognition over 128 samples of six channels."""
    layers, width = [], channels
    for outputs in (32, 64, 64):
        layers += [nn.Conv1d(width, outputs, 5, padding=2), nn.BatchNorm1d(outputs) if norm else nn.Identity(), nn.ReLU(),
                   nn.MaxPool1d(2)]  # fmt: skip
        width = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(width * 16, 64), nn.ReLU(), nn.Linear(64, classes))


class SameConv1d(nn.Conv1d):
    """As padding='same', which the exporter does not know."""

    def forward(self, x):
        wide = self.kernel_size[0] - 1
        return super().forward(F.pad(x, (wide // 2, wide - wide // 2)))


class HarFcn(nn.Module):
    """The fully convolutional network for time series (Wang, Yan, Oates 2017), over 128 samples of six channels."""

    def __init__(self, classes=6, channels=6):
        super().__init__()
        sizes = [(channels, 128, 8), (128, 256, 5), (256, 128, 3)]
        self.blocks = nn.Sequential(*[nn.Sequential(SameConv1d(i, o, k), nn.BatchNorm1d(o), nn.ReLU())
                                      for i, o, k in sizes])  # fmt: skip
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.blocks(x).mean(2))


class M5(nn.Module):
    """Raw sound (Dai, Dai, Qu, Li, Das 2017), at 8,000 samples."""

    def __init__(self, classes=35, width=32):
        super().__init__()
        sizes = [(1, width, 80, 16), (width, width, 3, 1), (width, 2 * width, 3, 1), (2 * width, 2 * width, 3, 1)]
        self.parts = nn.Sequential(*[nn.Sequential(nn.Conv1d(i, o, k, stride=s), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(4))
                                     for i, o, k, s in sizes])  # fmt: skip
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = self.parts(x)
        return F.log_softmax(self.fc(F.adaptive_avg_pool1d(x, 1).squeeze(-1)), dim=1)


class Residual1d(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a, self.na = nn.Conv1d(inputs, outputs, 7, stride, 3, bias=False), nn.BatchNorm1d(outputs)
        self.b, self.nb = nn.Conv1d(outputs, outputs, 7, 1, 3, bias=False), nn.BatchNorm1d(outputs)
        self.side = nn.Sequential(nn.Conv1d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm1d(outputs))

    def forward(self, x):
        return torch.relu(self.nb(self.b(torch.relu(self.na(self.a(x))))) + self.side(x))


class Ecg(nn.Module):
    """A residual network over ECG leads."""

    def __init__(self, leads=12, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(leads, 32, 15, 2, 7, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(3, 2, 1))
        self.blocks = nn.Sequential(Residual1d(32, 32, 1), Residual1d(32, 64, 2), Residual1d(64, 64, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool1d(1), nn.Linear(64, classes)

    def forward(self, x):
        return self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))


class Causal(nn.Module):
    """A block of a temporal convolutional network (Bai, Kolter, Koltun 2018): padding cut off behind."""

    def __init__(self, inputs, outputs, dilation, by_pad):
        super().__init__()
        self.cut, self.by_pad = 2 * dilation, by_pad
        padding = 0 if by_pad else self.cut
        self.a = nn.Conv1d(inputs, outputs, 3, padding=padding, dilation=dilation)
        self.b = nn.Conv1d(outputs, outputs, 3, padding=padding, dilation=dilation)
        self.side, self.drop = nn.Conv1d(inputs, outputs, 1), nn.Dropout(0.1)

    def one(self, conv, x):
        if self.by_pad:
            return self.drop(torch.relu(conv(F.pad(x, (self.cut, 0)))))
        return self.drop(torch.relu(conv(x)[:, :, : -self.cut].contiguous()))

    def forward(self, x):
        return torch.relu(self.one(self.b, self.one(self.a, x)) + self.side(x))


class Tcn(nn.Module):
    def __init__(self, channels=6, classes=6, by_pad=False):
        super().__init__()
        self.blocks = nn.Sequential(Causal(channels, 24, 1, by_pad), Causal(24, 24, 2, by_pad), Causal(24, 24, 4, by_pad))
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(self.blocks(x)[:, :, -1])


class Eeg(nn.Module):
    """EEGNet (Lawhern et al. 2018) over 22 electrodes and 256 samples."""

    def __init__(self, electrodes=22, classes=4):
        super().__init__()
        self.time = nn.Sequential(nn.Conv2d(1, 8, (1, 64), padding=(0, 32), bias=False), nn.BatchNorm2d(8))
        self.space = nn.Sequential(nn.Conv2d(8, 16, (electrodes, 1), groups=8, bias=False), nn.BatchNorm2d(16), nn.ELU(),
                                   nn.AvgPool2d((1, 4)), nn.Dropout(0.25))  # fmt: skip
        self.both = nn.Sequential(nn.Conv2d(16, 16, (1, 16), padding=(0, 8), groups=16, bias=False),
                                  nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ELU(), nn.AvgPool2d((1, 8)),
                                  nn.Dropout(0.25))  # fmt: skip
        self.fc = nn.Linear(16 * 8, classes)

    def forward(self, x):
        return self.fc(self.both(self.space(self.time(x))).flatten(1))


class SoundImage(nn.Module):
    """A small VGG over a log mel spectrogram of 64 bands, (N, frames, bands) as it is read."""

    def __init__(self, classes=10):
        super().__init__()
        self.a, self.b = conv_bn(1, 16, 3, padding=1), conv_bn(16, 32, 3, padding=1)
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        x = F.max_pool2d(self.a(x.unsqueeze(1)), 2)
        return self.fc(F.max_pool2d(self.b(x), 2).mean((2, 3)))


class WakeWord(nn.Module):
    """A head over 16 embeddings of 96 numbers, one probability out."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Flatten(), nn.Linear(1536, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, x):
        return self.parts(x)


class SqueezeExcite(nn.Module):
    def __init__(self, gate, activation, channels=16, classes=10):
        super().__init__()
        self.conv, self.gate, self.activation = nn.Conv2d(3, channels, 3, 2, 1), gate, activation
        self.down, self.up, self.fc = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1), nn.Linear(channels, classes)

    def forward(self, x):
        x = self.activation(self.conv(x))
        x = x * self.gate(self.up(self.activation(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class SqueezeDense(SqueezeExcite):
    """The same by dense layers and a view, as the paper's first implementation has it."""

    def __init__(self):
        super().__init__(torch.sigmoid, torch.relu)
        self.down, self.up = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        n, c = x.shape[:2]
        y = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return self.fc((x * y.view(n, c, 1, 1)).mean((2, 3)))


class Normalised(nn.Module):
    """(x - mean) / std inside."""

    def __init__(self):
        super().__init__()
        self.register_buffer('mean', torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer('std', torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.parts = nn.Sequential(conv_bn(3, 16, 3, stride=2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x):
        return self.parts((x - self.mean) / self.std)


class Lenet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))  # fmt: skip


class ChannelsLast(nn.Module):
    """Images come as (N, H, W, C) and are permuted first."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(conv_bn(3, 16, 3, stride=2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x):
        return self.parts(x.permute(0, 3, 1, 2))


class Scaled(nn.Module):
    """A residual branch with a learned scale of each channel (1, C, 1, 1)."""

    def __init__(self):
        super().__init__()
        self.stem, self.branch = conv_bn(3, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.scale, self.fc = nn.Parameter(torch.full((1, 16, 1, 1), 0.1)), nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.fc((x + self.scale * self.branch(x)).mean((2, 3)))
