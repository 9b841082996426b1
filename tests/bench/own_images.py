#!/usr/bin/python3
"""MobileNetV2 on a user's own folder of pictures: accuracy beside PyTorch, and whether a step waits for its pictures.

own_images.py DUNLIN-TRAIN FOLDER [--side ours|torch|wait] [--seeds N] [--epochs N] [--csv FILE]

FOLDER has train/CLASS/FILE and test/CLASS/FILE, pictures of 32 x 32. For each seed dunlin-train and PyTorch train the
same network from fresh weights by the same recipe: SGD with momentum, weight decay, a rate that rises and then falls as
a cosine, windows of a border of 4 zeros, mirrored in half of the cases, the training pictures' mean and deviation. Weights,
order and draws are each side's own. "wait" takes 60 steps with several numbers of reading threads and notes how long they waited.
A row is written as soon as it is known, and one that is there is not measured again. Needs python3-torch,
python3-torchvision and python3-pil.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import kept_rows

HERE = pathlib.Path(__file__).resolve().parent
BATCH, RATE, MOMENTUM, DECAY, WARMUP, PADDING = 128, 0.01, 0.9, 5e-4, 100, 4
SIDE, SAMPLED = 32, 1024  # of a picture; how many the mean and deviation are taken over
WAIT_STEPS, WAIT_THREADS = 60, (1, 2, 4)
COLUMNS = ["what", "side", "seed", "epochs", "threads", "test_accuracy", "test_loss", "cpu_s", "step_ms", "waited_s",
           "waited_share", "pipeline_bytes", "processor", "version", "commit", "date", "command"]  # fmt: skip
KEY = ["what", "side", "seed", "epochs", "threads"]


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    best = next((isa for isa, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in text), "SSE2")
    return "%s, %s" % (found.group(1) if found else "unknown", best)


def commit():
    done = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Table:
    def __init__(self, path):
        self.path = path

    def rows(self):
        return kept_rows.read(self.path)

    def has(self, **key):
        wanted = {name: str(key.get(name, "")) for name in KEY}
        return any(all(row[name] == wanted[name] for name in KEY) for row in self.rows())

    def add(self, **row):
        row.setdefault("processor", processor())
        row.setdefault("date", datetime.date.today().isoformat())
        kept_rows.append(self.path, COLUMNS, row)
        print({name: value for name, value in row.items() if name not in ("command", "processor", "version")}, flush=True)


def run(args, words):
    """The program's JSON object and the command without names of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        command = ["--model", "mobilenet_v2", "--dataset", "folder:DIR", "--image", str(SIDE), "--batch", str(BATCH), *words]
        real = [word.replace("folder:DIR", "folder:" + args.folder) for word in command]
        done = subprocess.run([args.program, *real, "--json", path], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("own_images.py: %s: %s" % (" ".join(real), done.stderr.strip()[-300:]))
        return json.loads(pathlib.Path(path).read_text()), "dunlin-train " + " ".join(command)


RECIPE = ["--random-crop", str(PADDING), "--flip", "--threads", "1"]


def train_ours(args, table, seed):
    recipe = [*RECIPE, "--epochs", str(args.epochs), "--lr", str(RATE), "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY),
              "--schedule", "cosine", "--warmup", str(WARMUP), "--seed", str(seed), "--eval"]  # fmt: skip
    found, command = run(args, recipe)
    table.add(what="accuracy", side="ours", seed=seed, epochs=args.epochs, threads=1, test_accuracy=round(found["test_accuracy"], 4),
              test_loss=round(found["test_loss"], 4), cpu_s=round(found["cpu_s"], 1), step_ms=round(found["step_ms_median"], 2),
              pipeline_bytes=found["pipeline_bytes"], version="", commit=found["commit"], command=command)  # fmt: skip


def measure_wait(args, table, threads):
    words = [*RECIPE, "--steps", str(WAIT_STEPS), "--lr", str(RATE), "--prefetch-threads", str(threads)]
    found, command = run(args, words)
    waited = found["pipeline_waited_ms"] / 1e3
    table.add(what="wait", side="ours", seed="", epochs="", threads=threads, cpu_s=round(found["cpu_s"], 1),
              step_ms=round(found["step_ms_median"], 2), waited_s=round(waited, 4), waited_share=round(found["pipeline_waited_share"], 5),
              pipeline_bytes=found["pipeline_bytes"], version="", commit=found["commit"], command=command)  # fmt: skip


def read_split(folder):
    """All pictures (N, 3, H, W) and their classes, in the order of class and file names."""
    import numpy as np
    import torch
    from PIL import Image

    pictures, labels = [], []
    for label, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            with Image.open(os.path.join(folder, name, file)) as image:
                pictures.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
            labels.append(label)
    return torch.from_numpy(np.stack(pictures)), torch.tensor(labels)


def moments(pictures):
    """Over the pictures that dunlin-train takes them over."""
    n = len(pictures)
    most = min(n, SAMPLED)
    chosen = [i for i in range(n) if (i + 1) * most // n > i * most // n]
    values = pictures[chosen].double() / 255
    return (
        values.mean((0, 2, 3)).float().reshape(1, 3, 1, 1),
        values.std((0, 2, 3), unbiased=False).float().reshape(1, 3, 1, 1),
    )


def augmented(pictures):
    """A window of each picture in a border of zeros, every second one mirrored."""
    import torch

    n = len(pictures)
    padded = torch.nn.functional.pad(pictures, (PADDING,) * 4)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, n))
    rows = top[:, None] + torch.arange(SIDE)
    columns = left[:, None] + torch.arange(SIDE)
    columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns)
    return padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train_torch(args, table, seed, data):
    import torch
    import torchvision

    torch.manual_seed(seed)
    (x, y), (test_x, test_y), mean, deviation = data
    start = time.process_time()
    model = torchvision.models.mobilenet_v2(num_classes=int(y.max()) + 1).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    n_steps = args.epochs * math.ceil(len(x) / BATCH)

    def factor(step):
        return (step + 1) / (WARMUP + 1) if step < WARMUP else (1 + math.cos(math.pi * (step - WARMUP) / (n_steps - WARMUP))) / 2

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def taken(pictures):
        return ((pictures.float() / 255 - mean) / deviation).contiguous(memory_format=torch.channels_last)

    for epoch in range(args.epochs):
        model.train()
        for chosen in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(taken(augmented(x[chosen]))), y[chosen]).backward()
            optimizer.step()
            schedule.step()
        print("torch, seed %d: epoch %d of %d" % (seed, epoch + 1, args.epochs), flush=True)
    model.eval()
    with torch.no_grad():
        scores = torch.cat([model(taken(part)) for part in test_x.split(500)])
    table.add(what="accuracy", side="torch", seed=seed, epochs=args.epochs, threads=1,
              test_accuracy=round((scores.argmax(1) == test_y).double().mean().item(), 4),
              test_loss=round(torch.nn.functional.cross_entropy(scores, test_y).item(), 4),
              cpu_s=round(time.process_time() - start, 1), version=torch.__version__, commit=commit(),
              command="tests/bench/own_images.py PROGRAM DIR --side torch --epochs %d" % args.epochs)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--side", choices=["ours", "torch", "wait"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds that this run takes")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--csv", type=pathlib.Path, default=HERE / "results" / "own_images.csv")
    args = parser.parse_args()
    table = Table(args.csv)
    sides = [args.side] if args.side else ["ours", "torch", "wait"]
    data = None
    for seed in range(args.first, args.seeds):
        if "ours" in sides and not table.has(what="accuracy", side="ours", seed=seed, epochs=args.epochs, threads=1):
            train_ours(args, table, seed)
        if "torch" in sides and not table.has(what="accuracy", side="torch", seed=seed, epochs=args.epochs, threads=1):
            if data is None:
                import torch

                torch.set_num_threads(1)
                train = read_split(os.path.join(args.folder, "train"))
                data = (train, read_split(os.path.join(args.folder, "test")), *moments(train[0]))
            train_torch(args, table, seed, data)
    for threads in WAIT_THREADS if "wait" in sides else ():
        if not table.has(what="wait", side="ours", threads=threads):
            measure_wait(args, table, threads)


if __name__ == "__main__":
    main()
