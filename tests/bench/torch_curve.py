#!/usr/bin/env python3
"""The recipe of `dunlin-study convergence` in PyTorch: does it come to the same accuracy within its spread over seeds?

    torch_curve.py DUNLIN_TRAIN FOLDER [--batch N] [--lr F] [--seeds 2,3,4] [--csv FILE] [--study FILE]

FOLDER has train/ and test/ of CIFAR-10 as pictures, a folder a class (cifar10-jpeg). The network is torchvision's MobileNetV2 with the
first weights of ours for the same seed, which DUNLIN_TRAIN writes; SGD with momentum 0.9 and decay of all parameters, the rate warmed
up over a twentieth of the steps and then a cosine to 0, an epoch's last batch left out, windows of 32 x 32 of the picture with 4 zeros
around, half of them mirrored. Of the first N pictures, one of each class after the other, every tenth is left out, as many as the study
holds out. A line of CSV an epoch; --study adds those of the study's convergence.csv. 77 without PyTorch and torchvision. The study beside it:

    dunlin-study convergence --models mobilenet_v2 --dataset cifar10_jpeg --data DIR --max-examples 10000 --epochs 20 --policies auto --batches 32
        --budgets none:8 --lr 0.01 --weight-decay 5e-4 --augment crop=4,flip --validation 10% --seed 2 --seeds 3 --out FOLDER
"""
import argparse
import csv
import math
import pathlib
import subprocess
import sys
import tempfile

MEAN, DEVIATION = [0.491112, 0.480801, 0.444388], [0.246269, 0.244429, 0.262191]
COLUMNS = ["program", "model", "batch", "lr", "seed", "epoch", "loss", "accuracy"]


def pictures(folder, most):
    """The first `most` (0: all) as a tensor (N, 3, 32, 32) of bytes, and their classes."""
    import numpy
    import torch
    from PIL import Image

    classes = [sorted(one.iterdir()) for one in sorted(pathlib.Path(folder).iterdir()) if one.is_dir()]
    dealt = [(c, files[nth]) for nth in range(max(map(len, classes))) for c, files in enumerate(classes) if nth < len(files)]
    dealt = dealt[:most] if most else dealt
    images = numpy.stack([numpy.asarray(Image.open(path).convert("RGB")) for _, path in dealt])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor([c for c, _ in dealt])


def first_weights(program, model, seed):
    """Ours for this seed into the network; running statistics stay as they begin."""
    import onnx
    import torch
    from onnx import numpy_helper

    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/first.onnx"
        words = ["--model", "mobilenet_v2", "--image", "32", "--classes", "10", "--data", "synthetic", "--batch", "4", "--max-examples", "4"]
        subprocess.run([program, *words, "--steps", "1", "--lr", "1e-30", "--seed", str(seed), "--save", path], check=True, capture_output=True)
        found = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    state = model.state_dict()
    for name, value in state.items():
        if "running" not in name and "num_batches" not in name:
            state[name] = torch.from_numpy(found[name].copy()).reshape(value.shape)
    model.load_state_dict(state)


def normalised(images):
    import torch

    return (images.float() / 255 - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(DEVIATION).view(1, 3, 1, 1)


def windows(wide, generator):
    """A window of 32 x 32 anywhere in each image of 40 x 40, half of them mirrored, a draw an image."""
    import torch

    places = torch.randint(0, 9, (len(wide), 2), generator=generator)
    mirrored = torch.rand(len(wide), generator=generator) < 0.5
    cut = [one[:, y : y + 32, x : x + 32] for one, (y, x) in zip(wide, places.tolist())]
    return torch.stack([one.flip(2) if flip else one for one, flip in zip(cut, mirrored)])


def augmented(images, generator):
    """As torchvision's RandomCrop does it of the stored images, and ours: the border is black. With one of the mean, which zeros are once
    values are normalised, short trainings end several points higher."""
    import torch.nn.functional as F

    return normalised(windows(F.pad(images, (4, 4, 4, 4)), generator))


def rate(step, steps, lr):
    warm = max(1, steps // 20)
    if step < warm:
        return lr * (step + 1) / warm
    return 0.5 * lr * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def train(model, data, test, options, seed):
    """Yields loss and accuracy on the test set after each epoch."""
    import torch
    import torch.nn.functional as F

    images, labels = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, 0.9, weight_decay=options.weight_decay)
    a_pass = len(images) // options.batch
    for epoch in range(options.epochs):
        order = torch.randperm(len(images), generator=generator)
        model.train()
        for i in range(a_pass):
            at = order[i * options.batch : (i + 1) * options.batch]
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch * a_pass + i, options.epochs * a_pass, options.lr)
            optimizer.zero_grad()
            F.cross_entropy(model(augmented(images[at], generator)), labels[at]).backward()
            optimizer.step()
        model.eval()
        loss = right = 0.0
        with torch.no_grad():
            for i in range(0, len(test[0]), 200):
                outputs = model(normalised(test[0][i : i + 200]))
                loss += F.cross_entropy(outputs, test[1][i : i + 200], reduction="sum").item()
                right += (outputs.argmax(1) == test[1][i : i + 200]).sum().item()
        yield epoch + 1, loss / len(test[0]), right / len(test[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--max-examples", type=int, default=10000)
    parser.add_argument("--seeds", default="2,3,4")
    parser.add_argument("--csv")
    parser.add_argument("--study")
    options = parser.parse_args()
    try:
        import torch
        import torchvision
    except ImportError as error:
        print("torch_curve.py: skipped, there is no PyTorch with torchvision: %s" % error)
        return 77
    torch.set_num_threads(1)
    images, labels = pictures(options.folder + "/train", options.max_examples)
    kept = torch.arange(len(images)) // 10 % 10 != 0  # one in ten of each class is left out
    test = pictures(options.folder + "/test", 0)
    out = open(options.csv, "a", newline="") if options.csv else sys.stdout
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    if options.study:
        for row in csv.DictReader(open(options.study, newline="")):
            values = [row[name] for name in ("model", "batch", "lr", "seed", "epoch")]
            writer.writerow(["dunlin", *values, "%.5f" % float(row["test_loss"]), "%.4f" % float(row["test_accuracy"])])
    for seed in map(int, options.seeds.split(",")):
        model = torchvision.models.mobilenet_v2(weights=None, num_classes=10)  # dropout 0.2, as ours
        first_weights(options.program, model, seed)
        for epoch, loss, accuracy in train(model, (images[kept], labels[kept]), test, options, seed):
            writer.writerow(["pytorch", "mobilenet_v2", options.batch, options.lr, seed, epoch, "%.5f" % loss, "%.4f" % accuracy])
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
