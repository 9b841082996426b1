"""One measurement of PyTorch on the CPU, beside ours: inference, then training steps, of one network at one batch.

Prints one line of JSON: processor milliseconds (median, least, most) of a forward pass in eval mode and of a training
step (forward, cross-entropy, backward, SGD with momentum 0.9, float32), the process's high-water mark in bytes above
what is resident with PyTorch loaded and warm, and what it ran on; or {"problem": "..."}.

It runs in the strongest form we know: the faster of the two layouts of images, found by trial in a child, OpenBLAS
with the widest kernels of the processor; the caller sets threads and an allocator that keeps its memory.
"""
import argparse
import ctypes
import json
import os
import re
import sys
import time

OLD_CORES = ["Generic", "Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington",
             "Nehalem", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Bobcat", "Atom", "Nano"]
NETWORKS = ["alexnet", "googlenet", "mobilenet_v2", "squeezenet1_1", "resnet18", "resnet34", "resnet50", "resnet101", "densenet121",
            "vgg11", "vgg13", "vgg16", "vgg19", "mobilenet_v3_small", "mobilenet_v3_large"]


def status_bytes(key):
    with open("/proc/self/status") as status:
        return next((int(line.split()[1]) << 10 for line in status if line.startswith(key + ":")), 0)


def choose_blas():
    """OpenBLAS takes a processor younger than itself for a very old one, which is five times slower: it is told what to use."""
    with open("/proc/cpuinfo") as info:
        flags = set(" ".join(re.findall(r"^flags\s*:(.*)$", info.read(), re.MULTILINE)).split())
    core = "SkylakeX" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else "Haswell" if {"avx2", "fma"} <= flags else None
    if core:
        os.environ.setdefault("OPENBLAS_CORETYPE", core)
    return "avx2" in flags


def check_blas(torch, has_avx2):
    """Why the comparison would be unfair to PyTorch; None: it is not."""
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "openblas" in line})
    if not paths:
        return None if torch.backends.mkl.is_available() else "PyTorch runs on neither OpenBLAS nor MKL, which would be unfair to it"
    library = ctypes.CDLL(paths[0])
    if not hasattr(library, "openblas_get_corename"):
        return None
    library.openblas_get_corename.restype = ctypes.c_char_p
    core = library.openblas_get_corename().decode()
    return "OpenBLAS takes this processor for a %s, which would be unfair to PyTorch" % core if has_avx2 and core in OLD_CORES else None


def make(torch, name, classes):
    nn = torch.nn
    if name == "lenet5":
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                             nn.Linear(84, classes))
    import torchvision
    more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    return getattr(torchvision.models, name)(num_classes=classes, **more)


class Work:
    """A network with its examples."""

    def __init__(self, torch, args, layout):
        self.torch = torch
        torch.manual_seed(0)
        torch.set_num_threads(args.threads)
        self.model = make(torch, args.model, args.classes)
        self.x = torch.randn(args.batch, args.channels, args.image, args.image)
        self.y = torch.randint(0, args.classes, (args.batch,))
        if layout == "nhwc":
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        loss.item()

    def forward(self):
        with self.torch.inference_mode():
            self.model(self.x)

    def times(self, call, n, seconds):
        """Sorted milliseconds of n calls after one that is not counted; no further one after so many seconds."""
        made = []
        call()
        started = time.perf_counter()
        while len(made) < n and (len(made) < 2 or time.perf_counter() - started < seconds):
            begin = time.process_time()
            call()
            made.append(1e3 * (time.process_time() - begin))
        return sorted(made)


def faster_layout(torch, args):
    """By two steps of each in a child: threads and memory of the trial are none of this process's."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        best = {}
        for layout in ("nhwc", "nchw"):
            work = Work(torch, args, layout)
            work.model.train()
            best[layout] = work.times(work.step, 2, 60.0)[0]
        os.write(writer, min(best, key=best.get).encode())
        os._exit(0)
    os.close(writer)
    layout = os.read(reader, 16).decode()
    os.waitpid(child, 0)
    return layout or "nhwc"


def summary(name, times):
    return {name + "_ms": (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2, name + "_low_ms": times[0], name + "_high_ms": times[-1],
            name + "_n": len(times)}


def measure(args):
    has_avx2 = choose_blas()
    import torch
    if args.model not in NETWORKS + ["lenet5"]:
        return {"problem": "no network %s" % args.model}
    layout = faster_layout(torch, args)
    # Everything that is loaded on first use, before memory is looked at.
    torch.set_num_threads(args.threads)
    warm = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    torch.nn.functional.cross_entropy(warm(torch.randn(2, 3, 8, 8)), torch.tensor([0, 1])).backward()
    problem = check_blas(torch, has_avx2)
    if problem:
        return {"problem": problem}
    if args.model != "lenet5":
        import torchvision  # noqa: F401
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    base = status_bytes("VmRSS")
    work = Work(torch, args, layout)
    work.model.eval()
    made = summary("forward", work.times(work.forward, 4 * args.steps, args.seconds))
    made["forward_bytes"] = status_bytes("VmHWM") - base
    work.model.train()
    made.update(summary("step", work.times(work.step, args.steps, args.seconds)))
    made["step_bytes"] = status_bytes("VmHWM") - base
    made.update(layout=layout, parameters=sum(p.numel() for p in work.model.parameters()))
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    for name in ("image", "channels", "classes", "batch", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    try:
        made = measure(parser.parse_args())
    except Exception as error:  # what is missing or does not fit is an answer
        made = {"problem": "%s: %s" % (type(error).__name__, str(error).splitlines()[0] if str(error) else "")}
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
