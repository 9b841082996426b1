"""Networks over images as papers and their repositories write them in PyTorch, each cut down to a block or two of every kind."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(inputs, outputs, size=3, stride=1, groups=1, act=nn.ReLU):
    """Convolution, batch norm and a function."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs),
                         act() if act else nn.Identity())  # fmt: skip


class LayerNorm2d(nn.LayerNorm):
    """ConvNeXt's: over the channels of each pixel."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class WrittenNorm2d(nn.Module):
    """ConvNeXt's own repository: the same, written out for (N, C, H, W)."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ResponseNorm(nn.Module):
    """ConvNeXt V2's global response normalisation, of (N, H, W, C)."""

    def __init__(self, width):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.randn(1, 1, 1, width) * 0.1), nn.Parameter(torch.zeros(1, 1, 1, width))

    def forward(self, x):
        g = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return self.gamma * (x * (g / (g.mean(dim=-1, keepdim=True) + 1e-6))) + self.beta + x


class ConvNextBlock(nn.Module):
    def __init__(self, width, is_v2=False):
        super().__init__()
        self.dw, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, 1e-6)
        self.p1, self.p2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = None if is_v2 else nn.Parameter(0.1 * torch.ones(width))
        self.grn = ResponseNorm(4 * width) if is_v2 else nn.Identity()

    def forward(self, x):
        y = self.p2(self.grn(F.gelu(self.p1(self.norm(self.dw(x).permute(0, 2, 3, 1))))))
        y = y if self.gamma is None else self.gamma * y
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Liu 2022; V2: Woo 2023."""

    def __init__(self, is_v2=False, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 4, 4), WrittenNorm2d(16))
        self.down = nn.Sequential(WrittenNorm2d(16), nn.Conv2d(16, 32, 2, 2))
        self.a, self.b = ConvNextBlock(16, is_v2), ConvNextBlock(32, is_v2)
        self.norm, self.head = nn.LayerNorm(32, 1e-6), nn.Linear(32, classes)

    def forward(self, x):
        x = self.b(self.down(self.a(self.stem(x))))
        return self.head(self.norm(x.mean([-2, -1])))


class Mixer(nn.Module):
    """MLP-Mixer: Tolstikhin 2021."""

    def __init__(self, width=32, tokens=16, classes=10):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, width, 8, 8), nn.Linear(width, classes)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(5)])
        self.mixes = nn.ModuleList([nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)) for n in (tokens, width) * 2])

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i in (0, 2):
            x = x + self.mixes[i](self.norms[i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.mixes[i + 1](self.norms[i + 1](x))
        return self.head(self.norms[4](x).mean(1))


class SpatialGate(nn.Module):
    """gMLP's unit: Liu 2021."""

    def __init__(self, width, tokens):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width // 2), nn.Conv1d(tokens, tokens, 1)
        nn.init.constant_(self.mix.bias, 1.0)

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        return u * self.mix(self.norm(v))


class Gmlp(nn.Module):
    def __init__(self, width=32, tokens=16, classes=10):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, width, 8, 8), nn.Linear(width, classes)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), SpatialGate(64, tokens),
                                                   nn.Linear(32, width)) for _ in range(2)])  # fmt: skip

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(1))


class Heads(nn.Module):
    """Attention by one layer for q, k and v, as timm writes it."""

    def __init__(self, width, heads=4, context=None):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))


class TokenBlock(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Heads(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class MobileVit(nn.Module):
    """MobileViT's block: patches are unfolded so that pixels of the same place in them attend to each other. Mehta 2022."""

    def __init__(self, width=24, classes=10):
        super().__init__()
        self.stem, self.local = conv(3, 16, stride=2, act=nn.SiLU), conv(16, 16, act=nn.SiLU)
        self.inside, self.outside = nn.Conv2d(16, width, 1, bias=False), conv(width, 16, 1, act=nn.SiLU)
        self.blocks = nn.Sequential(TokenBlock(width), TokenBlock(width))
        self.fuse, self.head = conv(32, 16, act=nn.SiLU), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        y = self.inside(self.local(x))
        b, c, h, w = y.shape
        y = y.reshape(b * c * (h // 2), 2, w // 2, 2).transpose(1, 2)
        y = y.reshape(b, c, h * w // 4, 4).transpose(1, 3).reshape(b * 4, h * w // 4, c)
        y = self.blocks(y)
        y = y.contiguous().view(b, 4, h * w // 4, c).transpose(1, 3)
        y = y.reshape(b * c * (h // 2), w // 2, 2, 2).transpose(1, 2).reshape(b, c, h, w)
        return self.head(self.fuse(torch.cat([x, self.outside(y)], 1)).mean([2, 3]))


class Cvt(nn.Module):
    """CvT: q, k and v by depthwise convolutions over the tokens as an image, k and v of half the size. Wu 2021."""

    def __init__(self, width=32, heads=4, classes=10):
        super().__init__()
        self.embed, self.norm, self.heads = nn.Conv2d(3, width, 7, 4, 2), nn.LayerNorm(width), heads
        self.ways = nn.ModuleList([conv(width, width, 3, stride, width, act=None) for stride in (1, 2, 2)])
        self.lin = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.mlp, self.last = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        b, c, h, w = x.shape
        x = self.norm(x.flatten(2).transpose(1, 2))
        image = x.transpose(1, 2).reshape(b, c, h, w)
        q, k, v = (lin(way(image).flatten(2).transpose(1, 2)).view(b, -1, self.heads, c // self.heads).transpose(1, 2)
                   for way, lin in zip(self.ways, self.lin))  # fmt: skip
        y = torch.einsum('bhlt,bhtv->bhlv', torch.softmax(torch.einsum('bhlk,bhtk->bhlt', q, k) * c**-0.5, -1), v)
        x = x + self.lin[3](y.transpose(1, 2).reshape(b, -1, c))
        return self.head(self.last(x + self.mlp(x)).mean(1))


class EfficientFormer(nn.Module):
    """EfficientFormer: pooling as mixer, then attention with a bias for each offset. Li 2022."""

    def __init__(self, width=32, heads=4, classes=10):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, stride=2, act=nn.GELU), conv(16, width, stride=2, act=nn.GELU))
        self.pool, self.s1 = nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Parameter(torch.full((width,), 0.1))
        self.mlp, self.s2 = nn.Sequential(conv(width, 64, 1, act=nn.GELU), conv(64, width, 1, act=None)), nn.Parameter(torch.full((width,), 0.1))
        self.down, self.norm, self.heads = conv(width, width, 3, 2, act=None), nn.LayerNorm(width), heads
        self.qkv, self.proj, self.s3 = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Parameter(torch.full((width,), 0.1))
        side = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing='ij')).flatten(1)
        offset = (side[:, :, None] - side[:, None, :]).abs()
        self.biases = nn.Parameter(torch.randn(heads, 16) * 0.1)
        self.register_buffer('places', offset[0] * 4 + offset[1])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.s1.unsqueeze(-1).unsqueeze(-1) * (self.pool(x) - x)
        x = x + self.s2.unsqueeze(-1).unsqueeze(-1) * self.mlp(x)
        x = self.down(x).flatten(2).transpose(1, 2)
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, self.heads, 3 * c // self.heads).permute(0, 2, 1, 3).split([c // self.heads] * 3, dim=-1)
        attn = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5 + self.biases[:, self.places]
        y = self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
        return self.head((x + self.s3 * y).mean(-2))


class Ghost(nn.Module):
    """GhostNet's module and bottleneck: Han 2020."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = conv(3, 16, stride=2)
        self.p1, self.c1 = conv(16, 25, 1), conv(25, 25, 3, groups=25)
        self.reduce, self.expand = nn.Conv2d(49, 16, 1), nn.Conv2d(16, 49, 1)
        self.p2, self.c2 = conv(49, 8, 1, act=None), conv(8, 8, 3, groups=8, act=None)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        a = self.p1(x)
        y = torch.cat([a, self.c1(a)], 1)[:, :49, :, :]
        y = y * F.hardsigmoid(self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(y, (1, 1))))))
        a = self.p2(y)
        return self.head(F.adaptive_avg_pool2d(x + torch.cat([a, self.c2(a)], 1), 1).view(x.size(0), -1))


class RepVgg(nn.Module):
    """RepVGG's training form: three branches, each with a batch norm. Ding 2021."""

    def __init__(self, classes=10):
        super().__init__()
        self.a3, self.a1 = conv(3, 16, 3, 2, act=None), conv(3, 16, 1, 2, act=None)
        self.b3, self.b1, self.b0 = conv(16, 16, act=None), conv(16, 16, 1, act=None), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = F.relu(self.a3(x) + self.a1(x))
        x = F.relu(self.b3(x) + self.b1(x) + self.b0(x))
        return self.head(x.mean((2, 3)))


class Cbam(nn.Module):
    """CBAM: weights of channels from both poolings, weights of pixels from mean and maximum over channels. Woo 2018."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.place = conv(3, 16, stride=2), nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.mlp, self.head = nn.Sequential(nn.Conv2d(16, 4, 1, bias=False), nn.ReLU(), nn.Conv2d(4, 16, 1, bias=False)), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x * torch.sigmoid(self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1)))
        both = torch.cat([torch.mean(x, dim=1, keepdim=True), torch.max(x, dim=1, keepdim=True)[0]], dim=1)
        x = x * torch.sigmoid(self.place(both))
        return self.head(x.mean((2, 3)))


class Eca(nn.Module):
    """ECA: a 1-D convolution over the channels' means. Wang 2020."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.mix, self.head = conv(3, 16, stride=2), nn.Conv1d(1, 1, 3, padding=1, bias=False), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.mix(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return self.head((x * torch.sigmoid(y).expand_as(x)).mean((2, 3)))


class CoordinateAttention(nn.Module):
    """Coordinate attention: means along each side, joined, one convolution, cut again. Hou 2021."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.mix = conv(3, 16, stride=2), conv(16, 8, 1, act=nn.Hardswish)
        self.high, self.wide, self.head = nn.Conv2d(8, 16, 1), nn.Conv2d(8, 16, 1), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        h, w = x.shape[2:]
        y = torch.cat([x.mean(3, keepdim=True), x.mean(2, keepdim=True).permute(0, 1, 3, 2)], dim=2)
        high, wide = torch.split(self.mix(y), [h, w], dim=2)
        x = x * torch.sigmoid(self.wide(wide.permute(0, 1, 3, 2))) * torch.sigmoid(self.high(high))
        return self.head(x.mean((2, 3)))


class Selective(nn.Module):
    """SKNet: a softmax over branches for each channel. Li 2019."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.a, self.b = conv(3, 16, stride=2), conv(16, 16, 3), conv(16, 16, 5)
        self.squeeze, self.fa, self.fb, self.head = nn.Linear(16, 8), nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        branches = torch.stack([self.a(x), self.b(x)], dim=1)
        z = F.relu(self.squeeze(branches.sum(1).mean(-1).mean(-1)))
        weights = torch.softmax(torch.stack([self.fa(z), self.fb(z)], dim=1), dim=1)
        return self.head((branches * weights.unsqueeze(-1).unsqueeze(-1)).sum(dim=1).mean((2, 3)))


class Axial(nn.Module):
    """Axial attention: along the rows, then along the columns, with lines as samples. Ho 2019."""

    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem, self.high, self.wide, self.head = conv(3, width, 3, 4), Heads(width, 2), Heads(width, 2), nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        y = x.permute(0, 3, 2, 1).reshape(b * w, h, c)
        x = x + self.high(y).view(b, w, h, c).permute(0, 3, 2, 1)
        y = x.permute(0, 2, 3, 1).reshape(b * h, w, c)
        x = x + self.wide(y).view(b, h, w, c).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


class NonLocal(nn.Module):
    """The embedded Gaussian block of non-local networks: Wang 2018."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.out, self.head = conv(3, 16, 3, 4), nn.Conv2d(8, 16, 1), nn.Linear(16, classes)
        self.theta, self.phi, self.g = nn.Conv2d(16, 8, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x):
        x = self.stem(x)
        n = x.size(0)
        g = self.g(x).view(n, 8, -1).permute(0, 2, 1)
        f = torch.matmul(self.theta(x).view(n, 8, -1).permute(0, 2, 1), self.phi(x).view(n, 8, -1))
        y = torch.matmul(F.softmax(f, dim=-1), g).permute(0, 2, 1).contiguous().view(n, 8, *x.size()[2:])
        return self.head((self.out(y) + x).mean((2, 3)))


class UnetPlus(nn.Module):
    """UNet++ of three levels: Zhou 2018."""

    def __init__(self, classes=3):
        super().__init__()
        self.c00, self.c10, self.c20 = conv(3, 8), conv(8, 16), conv(16, 32)
        self.c01, self.c11, self.c02 = conv(24, 8), conv(48, 16), conv(32, 8)
        self.up, self.pool, self.end = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True), nn.MaxPool2d(2, 2), nn.Conv2d(8, classes, 1)

    def forward(self, x):
        x00 = self.c00(x)
        x10 = self.c10(self.pool(x00))
        x01 = self.c01(torch.cat([x00, self.up(x10)], 1))
        x11 = self.c11(torch.cat([x10, self.up(self.c20(self.pool(x10)))], 1))
        return self.end(self.c02(torch.cat([x00, x01, self.up(x11)], 1)))


class Pyramid(nn.Module):
    """A feature pyramid with one head shared by its levels, classes and boxes of all of them joined. Lin 2017."""

    def __init__(self, classes=4):
        super().__init__()
        self.a, self.b, self.c, self.classes = conv(3, 16, stride=2), conv(16, 32, stride=2), conv(32, 32, stride=2), classes
        self.lateral = nn.ModuleList([nn.Conv2d(n, 16, 1) for n in (16, 32, 32)])
        self.smooth = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(3)])
        self.tower, self.cls = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()), nn.Conv2d(16, classes, 3, padding=1)
        self.box = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x):
        c3 = self.a(x)
        c4 = self.b(c3)
        p5 = self.lateral[2](self.c(c4))
        p4 = self.lateral[1](c4) + F.interpolate(p5, size=c4.shape[-2:], mode='nearest')
        p3 = self.lateral[0](c3) + F.interpolate(p4, size=c3.shape[-2:], mode='nearest')
        found = [self.tower(smooth(p)) for smooth, p in zip(self.smooth, (p3, p4, p5))]
        scores = [self.cls(f).permute(0, 2, 3, 1).reshape(f.size(0), -1, self.classes) for f in found]
        boxes = [self.box(f).permute(0, 2, 3, 1).reshape(f.size(0), -1, 4) for f in found]
        return torch.cat(scores, 1), torch.cat(boxes, 1)


class SegFormer(nn.Module):
    """SegFormer: attention with reduced keys, a mixing convolution in the MLP, a decoder of dense layers. Xie 2021."""

    def __init__(self, classes=3):
        super().__init__()
        self.embed1, self.n1, self.embed2, self.n2 = nn.Conv2d(3, 16, 7, 4, 3), nn.LayerNorm(16), nn.Conv2d(16, 32, 3, 2, 1), nn.LayerNorm(32)
        self.sr, self.srn, self.q, self.kv, self.proj = nn.Conv2d(16, 16, 2, 2), nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(16, 16)
        self.fc1, self.dw, self.fc2 = nn.Linear(16, 32), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.Linear(32, 16)
        self.d1, self.d2, self.fuse, self.end = nn.Linear(16, 16), nn.Linear(32, 16), conv(32, 16, 1), nn.Conv2d(16, classes, 1)

    def attend(self, x, h, w):
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, 2, c // 2).permute(0, 2, 1, 3)
        y = self.srn(self.sr(x.permute(0, 2, 1).reshape(b, c, h, w)).reshape(b, c, -1).permute(0, 2, 1))
        k, v = self.kv(y).reshape(b, -1, 2, 2, c // 2).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1) * (c // 2) ** -0.5).softmax(dim=-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x):
        x = self.embed1(x)
        b, c, h, w = x.shape
        x = self.n1(x.flatten(2).transpose(1, 2))
        x = x + self.attend(x, h, w)
        y = self.dw(self.fc1(x).transpose(1, 2).view(b, 32, h, w)).flatten(2).transpose(1, 2)
        x = x + self.fc2(F.gelu(y))
        one = x.reshape(b, h, w, c).permute(0, 3, 1, 2).contiguous()
        two = self.embed2(one)
        h2, w2 = two.shape[2:]
        two = self.n2(two.flatten(2).transpose(1, 2))
        low = self.d2(two).permute(0, 2, 1).reshape(b, 16, h2, w2)
        low = F.interpolate(low, size=(h, w), mode='bilinear', align_corners=False)
        y = self.fuse(torch.cat([low, self.d1(x).permute(0, 2, 1).reshape(b, 16, h, w)], dim=1))
        return F.interpolate(self.end(y), scale_factor=4, mode='bilinear', align_corners=False)


class TwoTasks(nn.Module):
    """One trunk, a head for each task: a class, a number, and several labels."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(conv(3, 16, stride=2), conv(16, 32, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.kind, self.age, self.marks = nn.Linear(32, 10), nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)), nn.Linear(32, 5)

    def forward(self, x):
        x = self.trunk(x)
        return self.kind(x), self.age(x).squeeze(-1), self.marks(x)


class Conditioned(nn.Module):
    """FiLM: scales and shifts of an image's channels by a second input. Perez 2018."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.a, self.norm, self.film = conv(3, 16, stride=2), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16, affine=False), nn.Linear(8, 32)
        self.head = nn.Linear(16, classes)

    def forward(self, x, z):
        gamma, beta = self.film(z).chunk(2, dim=1)
        x = self.stem(x)
        y = self.norm(self.a(x))
        y = F.relu((1 + gamma[:, :, None, None]) * y + beta.unsqueeze(2).unsqueeze(3))
        return self.head((x + y).mean((2, 3)))


class Involved(nn.Module):
    """Pixel attention pooling by softmax over the pixels (GCNet's context block): Cao 2019."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem, self.mask = conv(3, 16, stride=2), nn.Conv2d(16, 1, 1)
        self.change, self.head = nn.Sequential(nn.Conv2d(16, 4, 1), nn.LayerNorm([4, 1, 1]), nn.ReLU(), nn.Conv2d(4, 16, 1)), nn.Linear(16, classes)

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.size()
        mask = torch.softmax(self.mask(x).view(b, 1, h * w), dim=2).unsqueeze(-1)
        context = torch.matmul(x.view(b, c, h * w).unsqueeze(1), mask).view(b, c, 1, 1)
        return self.head((x + self.change(context)).mean((2, 3)))
