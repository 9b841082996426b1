#!/usr/bin/env python3
"""Makes data/zoo.txt: names, shapes and order of the parameters of torchvision's networks.

Run as `python3 make_zoo.py` in this folder; needs PyTorch and torchvision (Debian: python3-torchvision). A line for each
network: its name, the number of entries of state_dict() but num_batches_tracked, the elements of parameters(); then for
each entry a check number of four hexadecimal digits: FNV-1a (64 bits, folded to 16 by exclusive or) of "NAME D0 D1 ...".
"""
import pathlib
import sys

import torch
import torchvision.models as tv
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import sensors  # noqa: E402


def conv_bn_relu(inputs, outputs, kernel, stride, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), nn.ReLU())


class MobileNetV1(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        pairs = ([(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
                 + [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)])
        self.features = nn.Sequential(conv_bn_relu(3, 32, 3, 2), *[
            nn.Sequential(conv_bn_relu(i, i, 3, stride, i), conv_bn_relu(i, o, 1, 1)) for i, o, stride in pairs])
        self.classifier = nn.Linear(1024, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class LeNet5(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                                        nn.Linear(84, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = self.n1(x + self.o((p @ v).transpose(1, 2).reshape(n, tokens, width)))
        return self.n2(x + self.f2(nn.functional.gelu(self.f1(x))))


class Bert(nn.Module):
    def __init__(self, num_classes=1000, vocabulary=30522, sequence=128, width=512):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(sequence, width))
        self.n = nn.LayerNorm(width)
        self.features = nn.Sequential(*[Block(width, 8) for _ in range(4)])
        self.pool, self.classifier = nn.Linear(width, width), nn.Linear(width, num_classes)

    def forward(self, x):
        x = self.features(self.n(self.tok(x) + self.pos))
        return self.classifier(torch.tanh(self.pool(x[:, 0])))


class Part(nn.Module):
    """Holds modules under names; what runs them is elsewhere."""

    def __init__(self, /, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class UncasedBert(nn.Module):
    """Named as transformers' BertForSequenceClassification; token 0 is padding, all tokens are of the first segment."""

    def __init__(self, num_classes=2, vocabulary=30522, sequence=128, layers=2, width=128, heads=2):
        super().__init__()

        def norm():
            return nn.LayerNorm(width, 1e-12)

        def layer():
            attention = Part(self=Part(**{name: nn.Linear(width, width) for name in ("query", "key", "value")}),
                             output=Part(dense=nn.Linear(width, width), LayerNorm=norm()))
            return Part(attention=attention, intermediate=Part(dense=nn.Linear(width, 4 * width)),
                        output=Part(dense=nn.Linear(4 * width, width), LayerNorm=norm()))

        embeddings = Part(word_embeddings=nn.Embedding(vocabulary, width), position_embeddings=nn.Embedding(512, width),
                          token_type_embeddings=nn.Embedding(2, width), LayerNorm=norm())
        self.bert = Part(embeddings=embeddings, encoder=Part(layer=nn.ModuleList([layer() for _ in range(layers)])),
                         pooler=Part(dense=nn.Linear(width, width)))
        self.classifier, self.heads = nn.Linear(width, num_classes), heads

    def attend(self, part, x, mask):
        q, k, v = (getattr(part, name)(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for name in ("query", "key", "value"))
        p = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask, -1)
        return (p @ v).transpose(1, 2).flatten(2)

    def forward(self, ids):
        parts = self.bert.embeddings
        dtype = self.classifier.weight.dtype
        mask = torch.zeros(ids.shape, dtype=dtype).masked_fill(ids == 0, torch.finfo(dtype).min)[:, None, None]
        x = parts.word_embeddings(ids) + parts.token_type_embeddings(0 * ids) + parts.position_embeddings.weight[:ids.shape[1]]
        x = parts.LayerNorm(x)
        for layer in self.bert.encoder.layer:
            x = layer.attention.output.LayerNorm(layer.attention.output.dense(self.attend(layer.attention.self, x, mask)) + x)
            y = nn.functional.gelu(layer.intermediate.dense(x))
            x = layer.output.LayerNorm(layer.output.dense(y) + x)
        return self.classifier(torch.tanh(self.bert.pooler.dense(x[:, 0])))


class GptAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.c_attn(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        behind = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        p = torch.softmax(scores.masked_fill(behind, float("-inf")), -1)
        return self.c_proj((p @ v).transpose(1, 2).reshape(n, tokens, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), GptAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(nn.functional.gelu(self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    """The head is the table of the tokens; num_classes is the vocabulary and not looked at."""

    def __init__(self, num_classes=0, vocabulary=65, sequence=64, width=128, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.h = nn.Sequential(*[GptBlock(width, heads) for _ in range(4)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x):
        return self.ln_f(self.h(self.wte(x) + self.wpe.weight)) @ self.wte.weight.t()


class VitAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        return self.proj((p @ v).transpose(1, 2).reshape(n, tokens, width))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, 1e-6), VitAttention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width, 1e-6), nn.Sequential()
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp.fc2(nn.functional.gelu(self.mlp.fc1(self.norm2(x))))


class Vit(nn.Module):
    """Named as timm's vit_tiny_patch16_224."""

    def __init__(self, num_classes=1000, image=224, patch=16, width=192, heads=3, layers=12):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.patch_embed = nn.Sequential()
        self.patch_embed.proj = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*[VitBlock(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, num_classes)

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def compare_vit():
    """The same numbers as torchvision's VisionTransformer of that size, which names its parameters otherwise."""
    ours, theirs = Vit(7, 32, 4), tv.VisionTransformer(32, 4, 12, 3, 192, 768, num_classes=7)
    words = [("class_token", "cls_token"), ("conv_proj", "patch_embed.proj"), ("encoder.pos_embedding", "pos_embed"),
             ("encoder.layers.encoder_layer_", "blocks."), (".ln_1.", ".norm1."), (".ln_2.", ".norm2."), (".in_proj_", ".qkv."),
             (".out_proj.", ".proj."), ("self_attention", "attn"), (".mlp.0.", ".mlp.fc1."), (".mlp.3.", ".mlp.fc2."),
             ("encoder.ln.", "norm."), ("heads.head.", "head.")]
    state = {}
    for name, value in theirs.state_dict().items():
        for word, other in words:
            name = name.replace(word, other)
        state[name] = value + 0.1 * torch.randn(value.shape)
    ours.load_state_dict(state)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), state.values())))
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(ours.eval()(x), theirs.eval()(x), atol=1e-5), "not torchvision's numbers"


class Double(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), Double(n_in, n_out))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(n_in, n_out, 2, 2), Double(n_in, n_out)

    def forward(self, x, beside):
        return self.conv(torch.cat([beside, self.up(x)], 1))


class UNet(nn.Module):
    """Named as in github.com/milesial/Pytorch-UNet."""

    def __init__(self, num_classes=2, width=64, levels=4):
        super().__init__()
        self.levels, self.inc = levels, Double(3, width)
        for i in range(levels):
            setattr(self, "down%d" % (i + 1), Down(width << i, width << i + 1))
        for i in range(levels):
            setattr(self, "up%d" % (i + 1), Up(width << levels - i, width << levels - i - 1))
        self.outc = nn.Sequential()
        self.outc.conv = nn.Conv2d(width, num_classes, 1)

    def forward(self, x):
        ways = [self.inc(x)]
        for i in range(self.levels):
            ways.append(getattr(self, "down%d" % (i + 1))(ways[-1]))
        x = ways.pop()
        for i in range(self.levels):
            x = getattr(self, "up%d" % (i + 1))(x, ways.pop())
        return self.outc(x)


def without_heads(name):
    """Of the Inception family, without the auxiliary heads; first values do not matter here."""
    return lambda: getattr(tv, name)(aux_logits=False, init_weights=False)


NETWORKS = {"lenet5": LeNet5, "mobilenet_v1": MobileNetV1,
            **{name: getattr(tv, name) for name in
               ("mobilenet_v2", "resnet18", "resnet50", "densenet121", "vgg16", "squeezenet1_1")},
            "bert_small": Bert, "ds_cnn": sensors.DsCnn,
            **{name: getattr(tv, name) for name in
               ("resnet34", "resnet101", "alexnet", "vgg11", "vgg13", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn",
                "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0",
                "shufflenet_v2_x0_5", "shufflenet_v2_x1_0")},
            "har_fcn": sensors.HarFcn,
            "googlenet": without_heads("googlenet"), "inception_v3": without_heads("inception_v3"),
            "googlenet_aux": lambda **options: tv.googlenet(aux_logits=True, init_weights=False, **options),
            "inception_v3_aux": lambda: tv.inception_v3(aux_logits=True, init_weights=False),
            "unet": UNet, "unet_small": lambda: UNet(4, 16, 3),
            "vit_tiny": Vit, "vit_tiny_patch4": lambda: Vit(10, 32, 4),
            "bert_tiny": UncasedBert,
            "bert_small_masked": lambda **options: UncasedBert(**{"layers": 4, "width": 512, "heads": 8, **options}),
            "gpt_tiny": Gpt, "gpt_small": lambda: Gpt(vocabulary=30522, sequence=128, width=512, heads=8)}


def check_number(text):
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % 2 ** 64
    return (value ^ value >> 16 ^ value >> 32 ^ value >> 48) & 0xffff


def main():
    compare_vit()
    with open("data/zoo.txt", "w") as out:
        for name, network in NETWORKS.items():
            model = network()
            entries = [(key, value) for key, value in model.state_dict().items()
                       if not key.endswith("num_batches_tracked")]
            words = [name, str(len(entries)), str(sum(p.numel() for p in model.parameters()))]
            words += ["%04x" % check_number(" ".join([key, *map(str, value.shape)])) for key, value in entries]
            out.write(" ".join(words) + "\n")


if __name__ == "__main__":
    main()
