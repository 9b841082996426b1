#!/usr/bin/env python3
"""Times training steps of PyTorch on the CPU, as bench_step does for ours, and prints one line of JSON.

A step: forward, cross-entropy, backward, SGD with momentum 0.9, float32, channels_last where there are images. Memory is
this process's own high-water mark above what is resident after PyTorch is loaded and its libraries are warm. One process
per measurement, pinned and with its allocator tuned by the caller (compare_torch.py).
"""
import argparse
import ctypes
import json
import sys
import time

SEQUENCE, VOCABULARY = 128, 30522
OLD_CORES = ["Generic", "Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington",
             "Nehalem", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat", "Atom", "Nano"]


def status_kib(key):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--classes", type=int, default=0, help="the model's own otherwise")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=1000.0, help="no further timed step after this")
    parser.add_argument("--format", choices=["nhwc", "nchw"], default="nhwc")
    return parser.parse_args()


def blas_core():
    """Which processor OpenBLAS takes this one for.

    Debian's PyTorch multiplies by whatever libblas.so.3 is: the reference one makes it 30 times slower, and OpenBLAS with
    kernels older than AVX, its choice for a processor that it does not know, five times.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "openblas" in line}
    if not paths:
        sys.exit("torch_step.py: PyTorch is not running on OpenBLAS, so the comparison would be unfair: "
                 "apt-get install libopenblas0-pthread")
    name_fn = ctypes.CDLL(sorted(paths)[0]).openblas_get_corename
    name_fn.restype = ctypes.c_char_p
    core = name_fn().decode()
    with open("/proc/cpuinfo") as info:
        has_avx2 = " avx2 " in info.read()
    if has_avx2 and core in OLD_CORES:
        sys.exit("torch_step.py: OpenBLAS takes this processor for a %s, so the comparison would be unfair: set "
                 "OPENBLAS_CORETYPE, as compare_torch.py does" % core)
    return core


def conv_norm_relu(nn, inputs, outputs, kernel, stride, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def mobilenet_v1(torch, classes):
    nn = torch.nn
    widths = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              *[(512, 512, 1)] * 5, (512, 1024, 2), (1024, 1024, 1)]
    blocks = [conv_norm_relu(nn, 3, 32, 3, 2)]
    for inputs, outputs, stride in widths:
        blocks.append(nn.Sequential(conv_norm_relu(nn, inputs, inputs, 3, stride, inputs),
                                    conv_norm_relu(nn, inputs, outputs, 1, 1)))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, classes))


def lenet5(torch, classes):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, classes))


def bert_small(torch, classes, layers=4, width=512, heads=8):
    nn, functional = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x):
            n, length, _ = x.shape
            packed = self.qkv(x).view(n, length, 3, heads, width // heads)
            q, k, v = packed.permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-1, -2) * (width // heads) ** -0.5, -1)
            x = self.n1(x + self.o((weights @ v).transpose(1, 2).reshape(n, length, width)))
            return self.n2(x + self.f2(functional.gelu(self.f1(x))))

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, width)
            self.places = nn.Parameter(torch.zeros(SEQUENCE, width))
            self.norm = nn.LayerNorm(width)
            self.layers = nn.Sequential(*[Layer() for _ in range(layers)])
            self.pool, self.classifier = nn.Linear(width, width), nn.Linear(width, classes)

        def forward(self, ids):
            x = self.layers(self.norm(self.tokens(ids) + self.places))
            return self.classifier(torch.tanh(self.pool(x[:, 0])))

    return Bert()


def make_model(torch, name, classes):
    own = {"mobilenet_v1": mobilenet_v1, "lenet5": lenet5, "bert_small": bert_small}
    if name in own:
        return own[name](torch, classes or (10 if name == "lenet5" else 1000))
    import torchvision
    return getattr(torchvision.models, name)(num_classes=classes or 1000)


def main():
    args = parse()
    import torch
    functional = torch.nn.functional
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    # Everything that is loaded on first use, before memory is looked at.
    warm = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    functional.cross_entropy(warm(torch.randn(2, 3, 8, 8)), torch.tensor([0, 1])).backward()
    del warm
    core = blas_core()
    make_model(torch, "squeezenet1_1", 2)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    base_kib = status_kib("VmRSS")

    model = make_model(torch, args.model, args.classes).train()
    classes = [layer for layer in model.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d))][-1]
    classes = getattr(classes, "out_features", None) or classes.out_channels
    if args.model == "bert_small":
        x = torch.randint(0, VOCABULARY, (args.batch, SEQUENCE))
    else:
        x = torch.randn(args.batch, 1 if args.model == "lenet5" else 3, args.image, args.image)
    y = torch.randint(0, classes, (args.batch,))
    if args.format == "nhwc" and args.model != "bert_small":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    seconds, cpu_seconds, started = [], [], None
    for step in range(args.warmup + args.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        if step == args.warmup:
            started = begin
        if len(seconds) >= 2 and begin - started > args.max_seconds:
            break
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss = loss.item()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
    growth_kib = status_kib("VmHWM") - base_kib
    seconds.sort()
    cpu_seconds.sort()
    n = len(seconds)
    print(json.dumps({
        "peer": "pytorch " + torch.__version__, "blas_core": core, "model": args.model, "image": args.image,
        "batch": args.batch, "threads": args.threads, "format": args.format, "steps": n, "sps": args.batch / seconds[n // 2],
        "best_sps": args.batch / seconds[0], "cpu_sps": args.batch / cpu_seconds[n // 2],
        "growth_bytes": growth_kib * 1024, "loss": loss,
        "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
