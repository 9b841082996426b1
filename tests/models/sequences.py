"""Text, recurrence, attention, and networks with an output for each pixel, as people write them in PyTorch."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 50


class TextCnn(nn.Module):
    """Kim 2014: convolutions of three widths over embedded tokens, the largest of each."""

    def __init__(self, width=24, classes=4):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.convs = nn.ModuleList([nn.Conv1d(width, 16, k) for k in (3, 4, 5)])
        self.fc = nn.Linear(48, classes)

    def forward(self, ids):
        x = self.table(ids).transpose(1, 2)
        return self.fc(torch.cat([torch.relu(conv(x)).max(2)[0] for conv in self.convs], 1))


class Recurrent(nn.Module):
    """LSTM, GRU or RNN over tokens or channels, the last output to a dense layer."""

    def __init__(self, kind, is_text, layers=1, both=False, classes=6):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 16) if is_text else None
        self.cells = kind(16 if is_text else 6, 24, layers, batch_first=True, bidirectional=both)
        self.fc = nn.Linear(48 if both else 24, classes)

    def forward(self, x):
        y, _ = self.cells(self.table(x) if self.table is not None else x)
        return self.fc(y[:, -1])


class ConvRecurrent(nn.Module):
    """DeepConvLSTM's shape: convolutions over time, then cells."""

    def __init__(self, classes=6):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(6, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2))
        self.cells, self.fc = nn.GRU(32, 24, batch_first=True), nn.Linear(24, classes)

    def forward(self, x):
        y, _ = self.cells(self.conv(x).transpose(1, 2))
        return self.fc(y[:, -1])


class Attention(nn.Module):
    """q, k and v by a layer each, or by one for all three."""

    def __init__(self, width=32, heads=4, is_joint=False):
        super().__init__()
        self.heads, self.is_joint, self.o = heads, is_joint, nn.Linear(width, width)
        if is_joint:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        n, t, c = x.shape
        if self.is_joint:
            q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (layer(x).view(n, t, self.heads, c // self.heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)
        p = torch.softmax(scores if mask is None else scores + mask, -1)
        return self.o((p @ v).transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, width=32, is_joint=False):
        super().__init__()
        self.attention, self.n1, self.n2 = Attention(width, is_joint=is_joint), nn.LayerNorm(width), nn.LayerNorm(width)
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        x = self.n1(x + self.attention(x, mask))
        return self.n2(x + self.f2(F.gelu(self.f1(x))))


class Bert(nn.Module):
    def __init__(self, is_joint=False, width=32, tokens=16, classes=4):
        super().__init__()
        self.word, self.kind, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(2, width), nn.Parameter(torch.randn(tokens, width))
        self.norm, self.blocks = nn.LayerNorm(width), nn.ModuleList([Block(width, is_joint) for _ in range(2)])
        self.pool, self.fc = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, ids, mask, types):
        mask = (1.0 - mask[:, None, None, :].float()) * -10000.0
        x = self.norm(self.word(ids) + self.kind(types) + self.place)
        for block in self.blocks:
            x = block(x, mask)
        return self.fc(torch.tanh(self.pool(x[:, 0])))


class Gpt(nn.Module):
    """A decoder; the last token's scores, or all tokens'."""

    def __init__(self, is_masked=True, is_tied=False, is_all=False, width=32, tokens=16):
        super().__init__()
        self.table, self.place = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.blocks, self.is_masked, self.is_all = nn.ModuleList([Block(width), Block(width)]), is_masked, is_all
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if is_tied:
            self.head.weight = self.table.weight
        self.register_buffer('bias', torch.tril(torch.ones(tokens, tokens)).view(1, 1, tokens, tokens))

    def forward(self, ids):
        t, mask = ids.shape[1], None
        if self.is_masked:
            mask = torch.zeros(1, 1, t, t).masked_fill(self.bias[:, :, :t, :t] == 0, -10000.0)
        x = self.table(ids) + self.place
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x if self.is_all else x[:, -1])


class Encoder(nn.Module):
    """nn.TransformerEncoder over embedded tokens."""

    def __init__(self, first=True, width=32, classes=4, is_padded=False):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, batch_first=first), 2)
        self.fc, self.first, self.is_padded = nn.Linear(width, classes), first, is_padded

    def forward(self, ids):
        x = self.table(ids)
        mask = ids == 0 if self.is_padded else None
        x = self.layers(x, src_key_padding_mask=mask) if self.first else self.layers(x.transpose(0, 1)).transpose(0, 1)
        return self.fc(x.mean(1))


class Heads(nn.Module):
    """nn.MultiheadAttention over windows of a sensor."""

    def __init__(self, classes=6, width=32):
        super().__init__()
        self.embed, self.fc = nn.Linear(6, width), nn.Linear(width, classes)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        x = self.embed(x)
        y, _ = self.attention(x, x, x)
        return self.fc((x + y).mean(1))


class Crossed(nn.Module):
    """nn.MultiheadAttention from one sensor's window to another's."""

    def __init__(self, classes=6, width=32):
        super().__init__()
        self.left, self.right, self.fc = nn.Linear(6, width), nn.Linear(4, width), nn.Linear(width, classes)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x, z):
        x, z = self.left(x), self.right(z)
        return self.fc((x + self.attention(x, z, z)[0]).mean(1))


class Translator(nn.Module):
    """nn.Transformer: the last token's scores; padding hidden in the source."""

    def __init__(self, width=32):
        super().__init__()
        self.source, self.target, self.fc = nn.Embedding(VOCABULARY, width), nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.layers = nn.Transformer(width, 4, 2, 2, 64, batch_first=True)

    def forward(self, source, target):
        pad, t = source == 0, target.shape[1]
        ahead = torch.triu(torch.full((t, t), float('-inf')), 1)
        x = self.layers(self.source(source), self.target(target), tgt_mask=ahead, src_key_padding_mask=pad, memory_key_padding_mask=pad)
        return self.fc(x[:, -1])


class SmallVit(nn.Module):
    def __init__(self, width=32, classes=10):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks, self.fc = nn.ModuleList([Block(width), Block(width)]), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.fc(x[:, 0])


class Factors(nn.Module):
    """Matrix factorisation: user and item as inputs of rank 1."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(VOCABULARY, 8), nn.Embedding(VOCABULARY, 8)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(1)


class Ncf(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(VOCABULARY, 8), nn.Embedding(VOCABULARY, 8)
        self.parts = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, item):
        return self.parts(torch.cat([self.user(user), self.item(item)], -1))


def double(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())  # fmt: skip


class Unet(nn.Module):
    def __init__(self, up, classes=3):
        super().__init__()
        self.a, self.b, self.c = double(3, 8), double(8, 16), double(24, 8)
        if up == 'transposed':
            self.up = nn.ConvTranspose2d(16, 16, 2, 2)
        else:
            self.up = nn.Upsample(scale_factor=2, mode=up, align_corners=False if up == 'bilinear' else None)
        self.end = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        a = self.a(x)
        return self.end(self.c(torch.cat([a, self.up(self.b(F.max_pool2d(a, 2)))], 1)))


class ImageAutoencoder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(),
                         nn.ConvTranspose2d(8, 1, 2, 2), nn.Sigmoid())  # fmt: skip


class Segment(nn.Sequential):
    """Scores of each pixel, without a change of size."""

    def __init__(self, classes=3):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.ReLU(),
                         nn.Conv2d(8, classes, 1))  # fmt: skip


class OutOnly(nn.Module):
    """Of torchvision's segmentation networks, which answer with a dictionary."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)['out']
