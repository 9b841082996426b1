"""Networks over sound, sensors, text and tables as papers and their repositories write them in PyTorch, cut down to a block or two."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

IDS = 50


class DilatedTcn(nn.Module):
    """TCN's block: two convolutions that are cut at the end (chomp), dropout, a 1 x 1 beside them. Bai 2018."""

    def __init__(self, classes=6):
        super().__init__()
        widths, self.convs, self.beside = [6, 16, 16, 24], nn.ModuleList(), nn.ModuleList()
        for i in range(3):
            for n in (widths[i], widths[i + 1]):
                self.convs.append(nn.Conv1d(n, widths[i + 1], 3, padding=2 * 2**i, dilation=2**i))
            self.beside.append(nn.Conv1d(widths[i], widths[i + 1], 1) if widths[i] != widths[i + 1] else None)
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(24, classes)

    def forward(self, x):
        for i, beside in enumerate(self.beside):
            y, cut = x, 2 * 2**i
            for c in self.convs[2 * i : 2 * i + 2]:
                y = self.drop(F.relu(c(y)[:, :, :-cut].contiguous()))
            x = F.relu(y + (x if beside is None else beside(x)))
        return self.fc(x[:, :, -1])


class WaveNet(nn.Module):
    """Gated dilated convolutions with residual and skip ways: van den Oord 2016."""

    def __init__(self, classes=6):
        super().__init__()
        self.start, self.end1, self.end2 = nn.Conv1d(6, 16, 1), nn.Conv1d(16, 16, 1), nn.Conv1d(16, classes, 1)
        self.filters = nn.ModuleList([nn.Conv1d(16, 16, 2, dilation=2**i) for i in range(3)])
        self.gates = nn.ModuleList([nn.Conv1d(16, 16, 2, dilation=2**i) for i in range(3)])
        self.residuals, self.skips = (nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(3)]) for _ in range(2))

    def forward(self, x):
        x, skip = self.start(x), 0
        for f, g, r, s in zip(self.filters, self.gates, self.residuals, self.skips):
            y = torch.tanh(f(x)) * torch.sigmoid(g(x))
            part = s(y)
            skip = part if isinstance(skip, int) else skip[:, :, -part.size(2) :] + part
            x = r(y) + x[:, :, -y.size(2) :]
        return self.end2(F.relu(self.end1(F.relu(skip)))).mean(-1)


class Conformer(nn.Module):
    """Conformer's block: two halves of feed-forward, attention, GLU and a depthwise convolution over time. Gulati 2020."""

    def __init__(self, width=32, classes=6):
        super().__init__()
        self.into, self.fc = nn.Linear(20, width), nn.Linear(width, classes)
        self.ff = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, width), nn.Dropout(0.1))
                                 for _ in range(2)])  # fmt: skip
        self.na, self.attn = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.nc, self.p1, self.dw, self.bn = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 7, padding=3, groups=width), nn.BatchNorm1d(width)
        self.p2, self.last = nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x):
        x = self.into(x)
        x = x + 0.5 * self.ff[0](x)
        y = self.na(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        y = F.glu(self.p1(self.nc(x).transpose(1, 2)), dim=1)
        x = x + self.p2(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
        return self.fc(self.last(x + 0.5 * self.ff[1](x)).mean(dim=1))


class PatchTst(nn.Module):
    """PatchTST: each channel is a sample, its windows by unfold are tokens; forecasts. Nie 2023."""

    def __init__(self, width=32, is_normed=True):
        super().__init__()
        self.embed, self.place, self.is_normed = nn.Linear(16, width), nn.Parameter(torch.randn(1, 11, width) * 0.02), is_normed
        layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, activation='gelu')
        self.layers, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(11 * width, 12)

    def forward(self, x):
        b, t, c = x.shape
        if self.is_normed:
            mean = x.mean(1, keepdim=True)
            std = torch.sqrt(x.var(dim=1, keepdim=True, unbiased=False) + 1e-5)
            x = (x - mean) / std
        x = x.permute(0, 2, 1).unfold(2, 16, 8)
        x = x.reshape(b * c, x.size(2), 16)
        x = self.layers(self.embed(x) + self.place)
        x = self.head(x.reshape(b, c, -1)).permute(0, 2, 1)
        return x * std + mean if self.is_normed else x


class DLinear(nn.Module):
    """DLinear: a moving mean with repeated ends, one dense layer for it and one for the rest. Zeng 2023."""

    def __init__(self):
        super().__init__()
        self.mean, self.trend, self.rest = nn.AvgPool1d(9, 1, 0), nn.Linear(96, 12), nn.Linear(96, 12)

    def forward(self, x):
        front, end = x[:, 0:1, :].repeat(1, 4, 1), x[:, -1:, :].repeat(1, 4, 1)
        trend = self.mean(torch.cat([front, x, end], dim=1).permute(0, 2, 1)).permute(0, 2, 1)
        rest = x - trend
        return (self.rest(rest.permute(0, 2, 1)) + self.trend(trend.permute(0, 2, 1))).permute(0, 2, 1)


class InceptionTime(nn.Module):
    """InceptionTime's module: Fawaz 2020."""

    def __init__(self, classes=6):
        super().__init__()
        self.neck, self.pool = nn.Conv1d(6, 8, 1, bias=False), nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(6, 8, 1, bias=False))
        self.convs = nn.ModuleList([nn.Sequential(nn.ConstantPad1d(((k - 1) // 2, k // 2), 0.0), nn.Conv1d(8, 8, k, bias=False)) for k in (39, 20, 10)])
        self.bn, self.short, self.fc = nn.BatchNorm1d(32), nn.Sequential(nn.Conv1d(6, 32, 1, bias=False), nn.BatchNorm1d(32)), nn.Linear(32, classes)

    def forward(self, x):
        y = self.neck(x)
        y = self.bn(torch.cat([*[c(y) for c in self.convs], self.pool(x)], 1))
        return self.fc(F.adaptive_avg_pool1d(F.relu(F.relu(y) + self.short(x)), 1).squeeze(-1))


class Vectors(nn.Module):
    """x-vectors' pooling: mean and deviation over time, joined. Snyder 2018."""

    def __init__(self, classes=6):
        super().__init__()
        self.a, self.b, self.fc = nn.Conv1d(20, 32, 5), nn.Conv1d(32, 32, 3, dilation=2), nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.b(F.relu(self.a(x))))
        return self.fc(torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1))


class AttentivePooling(nn.Module):
    """ECAPA's attentive statistics: a softmax over time for each channel. Desplanques 2020."""

    def __init__(self, classes=6):
        super().__init__()
        self.a, self.w1, self.w2, self.fc = nn.Conv1d(20, 32, 5), nn.Conv1d(96, 16, 1), nn.Conv1d(16, 32, 1), nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.a(x))
        t = x.size(-1)
        whole = torch.cat((x, x.mean(2, keepdim=True).repeat(1, 1, t), torch.sqrt(x.var(2, keepdim=True).clamp(min=1e-4)).repeat(1, 1, t)), dim=1)
        w = F.softmax(self.w2(torch.tanh(self.w1(whole))), dim=2)
        mu = torch.sum(x * w, dim=2)
        sg = torch.sqrt((torch.sum((x**2) * w, dim=2) - mu**2).clamp(min=1e-4))
        return self.fc(torch.cat((mu, sg), 1))


class DeepFm(nn.Module):
    """DeepFM: one table for all fields by offsets, products of pairs by squares, a deep way. Guo 2017."""

    def __init__(self, fields=5, width=8):
        super().__init__()
        self.linear, self.table, self.bias = nn.Embedding(fields * IDS, 1), nn.Embedding(fields * IDS, width), nn.Parameter(torch.zeros(1))
        self.deep = nn.Sequential(nn.Linear(fields * width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.register_buffer('offsets', torch.arange(fields) * IDS)

    def forward(self, ids):
        ids = ids + self.offsets
        e = self.table(ids)
        square, squares = e.sum(1) ** 2, (e**2).sum(1)
        fm = 0.5 * (square - squares).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(ids).sum(1) + self.bias + fm + self.deep(e.view(e.size(0), -1)))


class WideDeep(nn.Module):
    """Wide and deep: numbers by themselves, and a table for each column of ids. Cheng 2016."""

    def __init__(self, columns=3):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(10 + i, 4) for i in range(columns)])
        self.norm, self.wide = nn.BatchNorm1d(7), nn.Linear(7, 1)
        self.deep = nn.Sequential(nn.Linear(7 + 4 * columns, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers, ids):
        numbers = self.norm(numbers)
        x = torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)] + [numbers], dim=1)
        return self.wide(numbers) + self.deep(x)


class NeuMf(nn.Module):
    """NCF whole: factors and an MLP side by side. He 2017."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(IDS, 8) for _ in range(4)])
        self.mlp, self.end = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()), nn.Linear(16, 1)

    def forward(self, user, item):
        gmf = self.tables[0](user) * self.tables[1](item)
        mlp = self.mlp(torch.cat((self.tables[2](user), self.tables[3](item)), dim=-1))
        return torch.sigmoid(self.end(torch.cat((gmf, mlp), dim=-1))).squeeze(1)


class CrossNet(nn.Module):
    """DCN v2: x0 * (W x + b) + x. Wang 2021."""

    def __init__(self, fields=5):
        super().__init__()
        self.table, self.cross, self.end = nn.Embedding(IDS, 4), nn.ModuleList([nn.Linear(4 * fields, 4 * fields) for _ in range(2)]), nn.Linear(4 * fields, 1)

    def forward(self, ids):
        x0 = x = self.table(ids).flatten(1)
        for layer in self.cross:
            x = x0 * layer(x) + x
        return self.end(x)


class TabTransformer(nn.Module):
    """FT-Transformer: a token for each number by a weight of its own, a class token at the front. Gorishniy 2021."""

    def __init__(self, fields=7, width=32, classes=4):
        super().__init__()
        self.weight, self.bias, self.cls = nn.Parameter(torch.randn(fields, width)), nn.Parameter(torch.randn(fields, width)), nn.Parameter(torch.randn(width))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, norm_first=True), 1)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.weight[None] * x[..., None] + self.bias[None]
        x = torch.cat([self.cls.expand(x.size(0), 1, -1), x], dim=1)
        return self.head(F.relu(self.norm(self.layers(x)[:, 0])))


class DistilBert(nn.Module):
    """DistilBERT with token types, its mask by masked_fill, the mean of the tokens that are there. Sanh 2019."""

    def __init__(self, width=32, tokens=16, classes=4):
        super().__init__()
        self.word, self.place, self.kind = nn.Embedding(IDS, width), nn.Embedding(tokens, width), nn.Embedding(2, width)
        self.register_buffer('places', torch.arange(tokens).expand((1, -1)))
        self.n0, self.n1, self.n2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.lin, self.ffn, self.drop = nn.ModuleList([nn.Linear(width, width) for _ in range(4)]), nn.ModuleList([nn.Linear(width, 64), nn.Linear(64, width)]), nn.Dropout(0.1)
        self.pre, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, ids, mask, types):
        b, t = ids.size()
        x = self.drop(self.n0(self.word(ids) + self.place(self.places[:, :t]) + self.kind(types)))
        q, k, v = (lin(x).view(b, -1, 4, 8).transpose(1, 2) for lin in list(self.lin)[:3])
        scores = torch.matmul(q / math.sqrt(8), k.transpose(2, 3))
        hidden = (mask == 0).view(b, 1, 1, t).expand_as(scores)
        w = self.drop(F.softmax(scores.masked_fill(hidden, torch.tensor(torch.finfo(scores.dtype).min)), dim=-1))
        x = self.n1(self.lin[3](torch.matmul(w, v).transpose(1, 2).contiguous().view(b, -1, 32)) + x)
        x = self.n2(self.drop(self.ffn[1](F.gelu(self.ffn[0](x)))) + x)
        there = mask.unsqueeze(-1).expand(x.size()).float()
        mean = torch.sum(x * there, 1) / torch.clamp(there.sum(1), min=1e-9)
        return self.head(F.relu(self.pre(mean)))


class T5(nn.Module):
    """T5's encoder: buckets of relative positions, RMS norm, no scale. Raffel 2020."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        self.word, self.bias = nn.Embedding(IDS, width), nn.Embedding(8, 4)
        self.n1, self.n2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.wi, self.wo, self.head = nn.Linear(width, 64, bias=False), nn.Linear(64, width, bias=False), nn.Linear(width, classes)

    @staticmethod
    def norm(weight, x):
        return weight * (x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6))

    def places(self, t):
        far = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bucket = (far > 0).to(torch.long) * 4
        far = far.abs()
        large = 2 + (torch.log(far.float().clamp(min=1) / 2) / math.log(16 / 2) * 2).to(torch.long)
        bucket = bucket + torch.where(far < 2, far, torch.min(large, torch.full_like(large, 3)))
        return self.bias(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, ids):
        x = self.word(ids)
        b, t, c = x.shape
        y = self.norm(self.n1, x)
        q, k, v = (lin(y).view(b, -1, 4, c // 4).transpose(1, 2) for lin in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(3, 2)) + self.places(t)
        w = F.softmax(scores.float(), dim=-1).type_as(scores)
        x = x + self.o(torch.matmul(w, v).transpose(1, 2).contiguous().view(b, -1, c))
        x = x + self.wo(F.relu(self.wi(self.norm(self.n2, x))))
        return self.head(x.mean(1))


class Llama(nn.Module):
    """A Llama-like decoder: RMS norm, rotary halves, two key heads for four query heads, SwiGLU. Touvron 2023."""

    def __init__(self, width=32, tokens=16):
        super().__init__()
        self.table, self.n = nn.Embedding(IDS, width), nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(3)])
        self.q, self.k, self.v, self.o = (nn.Linear(width, n, bias=False) for n in (width, 16, 16, width))
        self.gate, self.up, self.down, self.head = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False), nn.Linear(64, width, bias=False), nn.Linear(width, IDS, bias=False)
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** -(torch.arange(0, 8, 2).float() / 8))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer('cos', angles.cos(), persistent=False)
        self.register_buffer('sin', angles.sin(), persistent=False)

    @staticmethod
    def norm(weight, x):
        x = x.to(torch.float32)
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def turned(self, x, t):
        a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return x * self.cos[:t][None, None] + torch.cat((-b, a), dim=-1) * self.sin[:t][None, None]

    def forward(self, ids):
        x = self.table(ids)
        b, t, c = x.shape
        y = self.norm(self.n[0], x)
        q, k, v = (lin(y).view(b, t, -1, 8).transpose(1, 2) for lin in (self.q, self.k, self.v))
        q, k = self.turned(q, t), self.turned(k, t)
        k, v = (z[:, :, None, :, :].expand(b, 2, 2, t, 8).reshape(b, 4, t, 8) for z in (k, v))
        mask = torch.full((t, t), torch.finfo(torch.float32).min).triu(1)
        w = F.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(8) + mask[None, None], dim=-1, dtype=torch.float32).to(q.dtype)
        x = x + self.o(torch.matmul(w, v).transpose(1, 2).reshape(b, t, c))
        y = self.norm(self.n[1], x)
        return self.head(self.norm(self.n[2], x + self.down(F.silu(self.gate(y)) * self.up(y))))


class Alibi(nn.Module):
    """A decoder with ALiBi's slopes, parallel attention and feed-forward (GPT-J's form). Press 2022."""

    def __init__(self, width=32, tokens=16):
        super().__init__()
        self.table, self.norm, self.qkv, self.out = nn.Embedding(IDS, width), nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.f1, self.f2, self.last, self.head = nn.Linear(width, 64), nn.Linear(64, width), nn.LayerNorm(width), nn.Linear(width, IDS)
        slopes = torch.tensor([2.0 ** -(2 * (i + 1)) for i in range(4)]).view(4, 1, 1)
        far = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
        self.register_buffer('slope', (slopes * far).unsqueeze(0))
        self.register_buffer('ahead', torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def forward(self, ids):
        x = self.table(ids)
        b, t, c = x.shape
        y = self.norm(x)
        q, k, v = (z.view(b, t, 4, c // 4).transpose(1, 2) for z in self.qkv(y).split(c, dim=2))
        w = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(c // 4)) + self.slope[:, :, :t, :t]
        w = w.masked_fill(self.ahead[:t, :t], float('-inf')).softmax(-1)
        x = x + self.out((w @ v).transpose(1, 2).contiguous().view(b, t, c)) + self.f2(F.gelu(self.f1(y)))
        return self.head(self.last(x))


class TwoTowers(nn.Module):
    """CLIP's: an image and a text, unit vectors of both, their products at a trained temperature. Radford 2021."""

    def __init__(self, width=16):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, width))
        self.table, self.place, self.mix = nn.Embedding(IDS, 32), nn.Parameter(torch.randn(12, 32) * 0.02), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.text, self.scale = nn.Linear(32, width, bias=False), nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, image, ids):
        a = self.image(image)
        b = self.text(self.mix(self.table(ids) + self.place)[:, -1])
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        return self.scale.exp() * (a * b).sum(-1, keepdim=True)


class Experts(nn.Module):
    """MMoE: experts shared by two tasks, a softmax of gates for each. Ma 2018."""

    def __init__(self, inputs=32, experts=3):
        super().__init__()
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(inputs, 16), nn.ReLU()) for _ in range(experts)])
        self.gates, self.heads = nn.ModuleList([nn.Linear(inputs, experts) for _ in range(2)]), nn.ModuleList([nn.Linear(16, 1) for _ in range(2)])

    def forward(self, x):
        found = torch.stack([expert(x) for expert in self.experts], dim=1)
        return tuple(torch.sigmoid(head((torch.softmax(gate(x), dim=1).unsqueeze(-1) * found).sum(dim=1)))
                     for gate, head in zip(self.gates, self.heads))  # fmt: skip


class Fourier(nn.Module):
    """A coordinate network with Fourier features and sines (SIREN): Sitzmann 2020."""

    def __init__(self):
        super().__init__()
        self.register_buffer('b', torch.randn(2, 16))
        self.a, self.c, self.end = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x):
        p = 2 * math.pi * x @ self.b
        x = torch.sin(self.a(torch.cat([torch.sin(p), torch.cos(p)], -1)))
        return torch.sigmoid(self.end(torch.sin(self.c(x))))


class AutoencoderVae(nn.Module):
    """A variational autoencoder's encoder and decoder without the drawn part, mean and log variance beside what is decoded."""

    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.var = nn.Sequential(nn.Linear(32, 24), nn.LeakyReLU(0.2)), nn.Linear(24, 4), nn.Linear(24, 4)
        self.dec = nn.Sequential(nn.Linear(4, 24), nn.LeakyReLU(0.2), nn.Linear(24, 32))

    def forward(self, x):
        x = self.enc(x)
        mu, var = self.mu(x), self.var(x)
        kl = -0.5 * torch.sum(1 + var - mu.pow(2) - var.exp(), dim=1, keepdim=True)
        return self.dec(mu), kl


class BiasedRelations(nn.Module):
    """Two sets of tokens scored by a bilinear form and read by its maximum, as retrieval heads do (ColBERT): Khattab 2020."""

    def __init__(self, width=16):
        super().__init__()
        self.table, self.mix = nn.Embedding(IDS, width), nn.Linear(width, width, bias=False)

    def forward(self, query, document):
        q, d = F.normalize(self.mix(self.table(query)), p=2, dim=2), F.normalize(self.mix(self.table(document)), p=2, dim=2)
        return (q @ d.permute(0, 2, 1)).max(2).values.sum(1)
