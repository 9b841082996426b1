#!/usr/bin/env python3
"""Do a character GPT, a U-Net and a ViT learn as PyTorch's do with the same recipe: the same final loss, within two standard errors?

    learning.py DUNLIN_TRAIN --data FOLDER --csv FILE [--tasks gpt,unet,vit] [--seeds 1,2,3] [--epochs N] [--images N] [--steps N]

gpt: gpt_tiny on tinyshakespeare/input.txt by character. unet: unet_small on the made set "shapes", made here once more. vit:
vit_tiny_patch4 on the first N pictures of cifar10-jpeg/ (unpacked), windows of 32 x 32 with 4 zeros around, half of them mirrored. All
by AdamW, an epoch's last batch left out, on one thread. PyTorch's side begins with our first weights for the seed and takes our rate of
each step from the log; the order of the examples and the draws of windows are its own. Before it trains, its loss on the test split with
those weights must be ours: so that data, network and weights are the same.

FILE gets a row for each task, seed and side as soon as it is there, and rows that are there already are kept, so a run that was
ended goes on where it was; with another recipe (--epochs, --images, --steps) they are others, and are told apart. At the end a line for each task: both
means over the seeds with their standard errors, the difference, and whether it is below two standard errors of it. --steps N: so many steps
of each, to try the script. 77 without PyTorch and onnx.
"""
import argparse
import collections
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import kept_rows

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))

COLUMNS = ["task", "side", "seed", "examples", "epochs", "steps", "first_test_loss", "train_loss", "test_loss", "test_accuracy", "seconds"]
KEY = ("task", "side", "seed", "examples", "epochs", "steps")
TAIL = 20  # steps over whose mean the last training loss is taken
Recipe = collections.namedtuple("Recipe", "model dataset examples epochs batch lr decay flags")
RECIPES = {
    "gpt": Recipe("gpt_tiny", "shakespeare", 0, 4, 32, 2e-3, 0.01, []),
    "unet": Recipe("unet_small", "shapes", 2048, 6, 16, 2e-3, 0.01, []),
    "vit": Recipe("vit_tiny_patch4", "cifar10_jpeg", 10000, 8, 32, 5e-4, 0.05, ["--random-crop", "4", "--flip"]),
}
CIFAR_MEAN, CIFAR_DEVIATION = [0.491112, 0.480801, 0.444388], [0.246269, 0.244429, 0.262191]


# --- the data, as ours has them: (train x, train labels), (test x, test labels) ---


def text_rows(folder, length=64):
    """What roles say as rows of tokens and the next ones: the last tenth of each role's is the test split."""
    import torch

    said = {}
    role = None
    for block in (folder / "tinyshakespeare" / "input.txt").read_bytes().split(b"\n\n"):
        block = block.strip(b"\n")
        head, _, rest = block.partition(b"\n")
        if len(head) > 1 and head.endswith(b":"):
            role, block = head, rest
        if block:
            said[role] = said.get(role, b"") + block + b"\n"
    number = {byte: i for i, byte in enumerate(sorted(set(b"".join(said.values()))))}
    splits = ([], [])
    for text in said.values():
        cut = len(text) - len(text) // 10
        for rows, part in zip(splits, (text[:cut], text[cut:])):
            tokens = [number[byte] for byte in part]
            rows += [tokens[at : at + length + 1] for at in range(0, len(tokens) - length, length)]
    return [(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()) for rows in map(torch.tensor, splits)]


GOLDEN = 0x9E3779B97F4A7C15
ALL = 2**64 - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & ALL
    return x ^ (x >> 31)


class Draws:
    """dunlin__draw_begin() and what is drawn from it."""

    def __init__(self, seed, purpose, index):
        key = mix((seed + GOLDEN) & ALL)
        key = mix(key ^ mix((purpose + 0xD1B54A32D192ED03) & ALL))
        self.key, self.counter = mix((key + mix((index + 0x8CB92BA72F3D8DD7) & ALL)) & ALL), 0

    def below(self, n):
        self.counter += 1
        return mix((self.key + self.counter * GOLDEN) & ALL) % n

    def many(self, n):
        """The next n numbers, as numpy has them."""
        import numpy

        at = numpy.arange(self.counter + 1, self.counter + n + 1, dtype=numpy.uint64)
        with numpy.errstate(over="ignore"):
            x = numpy.uint64(self.key) + at * numpy.uint64(GOLDEN)
            x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
            return x ^ (x >> numpy.uint64(31))


def colour(draws, other):
    found = [draws.below(208) + 24 for _ in range(3)]
    if other is not None:
        channel = draws.below(3)
        step = 48 + draws.below(48)
        found[channel] = other[channel] - step if other[channel] >= 128 else other[channel] + step
    return found


def scene(seed, index, side=32):
    """An image of "shapes" and the shape that each pixel shows (trainer/src/data/synthetic/scenes.c)."""
    import numpy

    draws = Draws(seed, 0x53484150, index)
    ground = colour(draws, None)
    y, x = numpy.mgrid[0:side, 0:side]
    labels, levels = numpy.zeros((side, side), int), numpy.tile(numpy.array(ground)[:, None, None], (1, side, side))
    for _ in range(1 + draws.below(3)):
        kind, at_x, at_y = 1 + draws.below(3), draws.below(side), draws.below(side)
        r = side // 8 + 1 + draws.below(side // 6 + 1)
        own = colour(draws, ground)
        dx, dy = abs(x - at_x), y - at_y
        is_in = (abs(dy) <= r) & (dx <= r)
        is_in &= {1: dx * dx + dy * dy <= r * r, 2: True, 3: 2 * dx <= dy + r}[kind]
        labels[is_in] = kind
        levels[:, is_in] = numpy.array(own)[:, None]
    bits = Draws(seed, 0x53484151, index).many(side * side).reshape(side, side)
    noise = numpy.stack([(bits >> numpy.uint64(16 * c) & numpy.uint64(0xFFFF)) % numpy.uint64(49) for c in range(3)])
    return numpy.clip(levels + noise.astype(int) - 24, 0, 255), labels


def shapes(seed, n_train, n_test=256):
    import numpy
    import torch

    splits = []
    for n, more in ((n_train, 0), (n_test, 1)):
        made = [scene((mix(seed) + more) & ALL, i) for i in range(n)]
        x = torch.from_numpy(numpy.stack([one for one, _ in made])).float() / 255
        splits.append(((x - 0.5) / 0.25, torch.from_numpy(numpy.stack([labels for _, labels in made]))))
    return splits


def cifar(folder, n_train):
    import torch
    from torch_curve import pictures

    splits = []
    for name, most in (("train", n_train), ("test", 0)):
        x, labels = pictures(folder / "cifar10-jpeg" / name, most)
        x = (x.float() / 255 - torch.tensor(CIFAR_MEAN).view(1, 3, 1, 1)) / torch.tensor(CIFAR_DEVIATION).view(1, 3, 1, 1)
        splits.append((x, labels))
    return splits


def augmented(x, generator):
    """Windows of normalised images with a black border, as torch_curve.augmented() has it."""
    import torch
    from torch_curve import windows

    black = -torch.tensor(CIFAR_MEAN) / torch.tensor(CIFAR_DEVIATION)
    wide = black.view(1, 3, 1, 1).repeat(len(x), 1, 40, 40)
    wide[:, :, 4:36, 4:36] = x
    return windows(wide, generator)


def network_of(task):
    import make_zoo

    return {"gpt": make_zoo.Gpt, "unet": lambda: make_zoo.UNet(4, 16, 3), "vit": lambda: make_zoo.Vit(10, 32, 4)}[task]()


# --- both sides ---


def run_ours(options, task, recipe, seed, more):
    """The JSON result of dunlin-train with the recipe and `more`."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--model", recipe.model, "--dataset", recipe.dataset, "--batch", recipe.batch, "--epochs", recipe.epochs, "--optimizer", "adamw",
                 "--lr", recipe.lr, "--weight-decay", recipe.decay, "--schedule", "cosine", "--drop-last", "--seed", seed, "--eval",
                 "--json", folder + "/out.json", *recipe.flags, *more]  # fmt: skip
        words += ["--max-examples", recipe.examples] if recipe.examples else []
        words += ["--data", options.data]
        done = subprocess.run([options.program, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit("%s, seed %d: %s" % (task, seed, done.stderr.strip()))
        return json.load(open(folder + "/out.json"))


def warmup_of(recipe, n_train):
    return max(1, recipe.epochs * (n_train // recipe.batch) // 20)


def first_state(options, task, recipe, seed, folder):
    """Our first weights by name, and our loss on the test split with them."""
    import onnx
    from onnx import numpy_helper

    path = folder + "/first.onnx"
    found = run_ours(options, task, recipe, seed, ["--steps", 1, "--lr", "1e-30", "--weight-decay", 0, "--save", path])
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}, found["test_loss"]


def evaluate(model, data, batch=64):
    import torch
    import torch.nn.functional as F

    x, labels = data
    loss = right = 0.0
    model.eval()
    with torch.no_grad():
        for at in range(0, len(x), batch):
            y = model(x[at : at + batch])
            y = y if y.dim() == 4 or y.dim() == 2 else y.transpose(1, 2)  # classes second
            part = labels[at : at + batch]
            loss += F.cross_entropy(y, part, reduction="sum").item()
            right += (y.argmax(1) == part).sum().item()
    return loss / labels.numel(), right / labels.numel()


def train_theirs(task, recipe, model, data, test, rates, seed):
    """Final training loss, and loss and accuracy on the test split."""
    import torch
    import torch.nn.functional as F

    x, labels = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), recipe.lr, weight_decay=recipe.decay)
    a_pass, losses = len(x) // recipe.batch, []
    order = None
    model.train()
    for step, rate in enumerate(rates):
        at = step % a_pass
        order = torch.randperm(len(x), generator=generator) if at == 0 else order
        part = order[at * recipe.batch : (at + 1) * recipe.batch]
        taken = augmented(x[part], generator) if task == "vit" else x[part]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        y = model(taken)
        loss = F.cross_entropy(y if y.dim() != 3 else y.transpose(1, 2), labels[part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-TAIL:]) / len(losses[-TAIL:]), *evaluate(model, test)


def data_of(options, task, recipe, seed):
    folder = pathlib.Path(options.data)
    return {"gpt": lambda: text_rows(folder), "unet": lambda: shapes(seed, recipe.examples), "vit": lambda: cifar(folder, recipe.examples)}[task]()


def rows_of(options, task, recipe, seed, log):
    """Ours with its log, whose rates theirs takes."""
    start = time.time()
    more = ["--warmup", options.warmup, "--log", log] + (["--steps", options.steps] if options.steps else [])
    found = run_ours(options, task, recipe, seed, more)
    seconds = time.time() - start
    with open(log, newline="") as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows][-TAIL:]
    return found, sum(losses) / len(losses), [float(row["lr"]) for row in rows], seconds


def is_there(options, key):
    return any(tuple(row[name] for name in KEY) == key for row in kept_rows.read(options.csv))


def add_row(options, key, numbers):
    kept_rows.append(options.csv, COLUMNS, dict(zip(COLUMNS, [*key, *("%.6g" % number for number in numbers)], strict=True)))


def compare(options, task, seed):
    recipe = RECIPES[task]
    recipe = recipe._replace(epochs=options.epochs or recipe.epochs, examples=min(options.images or recipe.examples, recipe.examples))
    keys = {side: (task, side, str(seed), str(recipe.examples), str(recipe.epochs), str(options.steps)) for side in ("dunlin", "pytorch")}
    if all(is_there(options, key) for key in keys.values()):
        return
    import torch

    train, test = data_of(options, task, recipe, seed)
    options.warmup = warmup_of(recipe, len(train[0]))
    with tempfile.TemporaryDirectory() as folder:
        state, first_loss = first_state(options, task, recipe, seed, folder)
        found, train_loss, rates, seconds = rows_of(options, task, recipe, seed, folder + "/log.csv")
    if not is_there(options, keys["dunlin"]):
        add_row(options, keys["dunlin"], (first_loss, train_loss, found["test_loss"], found["test_accuracy"], seconds))
    model = network_of(task)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict({name: torch.from_numpy(state[name].copy()).reshape(own[name].shape) if name in state else own[name] for name in own})
    theirs, _ = evaluate(model, test)
    if abs(theirs - first_loss) > 2e-4 * max(1.0, first_loss):
        raise SystemExit("%s, seed %d: with the same weights the loss on the test split is %.6f here, %.6f there" % (task, seed, first_loss, theirs))
    model.load_state_dict({name: own[name] if "running" in name else value for name, value in model.state_dict().items()})
    start = time.time()
    numbers = train_theirs(task, recipe, model, train, test, rates, seed)
    add_row(options, keys["pytorch"], (theirs, *numbers, time.time() - start))


def mean_and_error(values):
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else float("nan")
    return mean, deviation / math.sqrt(len(values))


def summarise(options):
    with open(options.csv, newline="") as file:
        rows = list(csv.DictReader(file))
    for group in sorted({tuple(row[name] for name in ("task", "examples", "epochs", "steps")) for row in rows}):
        sides = {}
        for row in rows:
            if tuple(row[name] for name in ("task", "examples", "epochs", "steps")) == group:
                sides.setdefault(row["side"], []).append(float(row["test_loss"]))
        if len(sides) < 2:
            continue
        (ours, our_error), (theirs, their_error) = (mean_and_error(sides[side]) for side in ("dunlin", "pytorch"))
        error = math.sqrt(our_error**2 + their_error**2)
        verdict = "within" if abs(ours - theirs) <= 2 * error else "NOT within" if error == error else "one seed: no"
        print("%s, %s examples, %s epochs, %s steps: dunlin %.4f +- %.4f, pytorch %.4f +- %.4f, difference %.4f; %s two standard errors (%.4f)"
              % (*group, ours, our_error, theirs, their_error, ours - theirs, verdict, 2 * error))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--data", required=True)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--tasks", default="gpt,unet,vit")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=int, default=0, help="0: each task's own")
    parser.add_argument("--images", type=int, default=0, help="at most so many images; 0: each task's own")
    parser.add_argument("--steps", type=int, default=0, help="0: all")
    options = parser.parse_args()
    try:
        import onnx  # noqa: F401
        import torch
        import torchvision  # noqa: F401
    except ImportError as error:
        print("learning.py: skipped: %s" % error)
        return 77
    torch.set_num_threads(1)
    for task in options.tasks.split(","):
        for seed in map(int, options.seeds.split(",")):
            compare(options, task, seed)
            print("%s, seed %d: done" % (task, seed), flush=True)
    summarise(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
