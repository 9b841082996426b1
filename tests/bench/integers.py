#!/usr/bin/python3
"""Accuracy in integers beside float32 with the same recipe: a row a run, three seeds, six series.

integers.py PROGRAMS [CSV] [--series NAME,...] [--precisions NAME,...] [--seeds N] [--epochs N] [--examples N] [--rounds N]

PROGRAMS has dunlin-train and dunlin-fleet, DUNLIN_DATA the data sets (cifar10_jpeg unpacked). Series: vgg11, VGG-11 with one
dense layer on 20,000 images of CIFAR-10's JPEG copy; lenet5, on Fashion-MNIST; writers, LeNet-5 federated on MNIST by writer;
mobilenet_v2 and resnet18, on 20,000 images as vgg11; vgg16, federated on 10,000 of them over ten devices, five a round. The last
three are those of the precisions that have batch norm (--precisions fp32,adaptive-int8,...). In the series on one machine all
precisions of a seed begin from the same weights: vgg11's are drawn here, even within the bound that He et al.
(2015) give the deviation for: int8 has one range a tensor, and a normal draw's rare far values would leave the others 1.4 bits less of it. A row
is written as soon as it is known, and one that is there is not run again, so an interrupted series continues. Rows of another
length (--epochs, --examples, --rounds) are rows of their own. At the end it prints how many points each precision is below
float32, the mean over the seeds that have both, beside the bar. "torch" among the precisions of vgg11 and lenet5 is PyTorch's float32
with the same first weights and recipe (integers_torch.py): how far our float32 is from it. Needs python3-numpy and python3-onnx.
"""
import argparse
import datetime
import json
import os
import pathlib
import resource
import subprocess
import tempfile

import kept_rows
import numpy as np
import onnx
from integers_rows import BARS, FROM_TORCH, bar_of, pairs
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["series", "precision", "seed", "epochs", "examples", "accuracy", "loss", "cpu_s", "commit", "date", "command"]
KEY = COLUMNS[:5]
VGG = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")
RATES = {"vgg11": "0.02", "lenet5": "0.02", "writers": "0.05", "mobilenet_v2": "0.02", "resnet18": "0.02",
         "vgg16": "0.02"}  # of float32 and of the precisions that have a rate  # fmt: skip
FLEETS = ("writers", "vgg16")
EXAMPLES = {"vgg11": 20000, "mobilenet_v2": 20000, "resnet18": 20000, "vgg16": 10000}
CIFAR = ["--dataset", "cifar10_jpeg", "--random-crop", "4", "--flip"]
# Without it float32 loses ten points: its first steps are too long. Precisions that clip errors, or their sums, are spared that.
WARMUP = {"mobilenet_v2": ["--warmup", "312"]}
BITS = {"vgg11": "4,3,2,1,0"}  # of niti's updates, its rate, where another list than the default was better on seed 11


def make_vgg(path, seed):
    """VGG-11 without batch norm for 32 x 32, its head one dense layer."""
    draw = np.random.default_rng(seed)
    nodes, constants, value, channels = [], [], "x", 3

    def layer(kind, shape, name, **attributes):
        weights = draw.uniform(-1.0, 1.0, shape) * np.sqrt(6.0 / np.prod(shape[1:]))
        constants.append(numpy_helper.from_array(weights.astype(np.float32), name + ".weight"))
        constants.append(numpy_helper.from_array(np.zeros(shape[0], np.float32), name + ".bias"))
        nodes.append(helper.make_node(kind, [value, name + ".weight", name + ".bias"], [name], name, **attributes))
        return name

    for i, width in enumerate(VGG):
        if width == "pool":
            nodes.append(helper.make_node("MaxPool", [value], ["pool%d" % i], kernel_shape=[2, 2], strides=[2, 2]))
            value = "pool%d" % i
            continue
        value = layer("Conv", (width, channels, 3, 3), "features.%d" % i, kernel_shape=[3, 3], pads=[1] * 4)
        nodes.append(helper.make_node("Relu", [value], [value + ".relu"]))
        value, channels = value + ".relu", width
    nodes.append(helper.make_node("Flatten", [value], ["flat"]))
    value = "flat"
    value = layer("Gemm", (10, channels), "classifier", transB=1)
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
               for name, shape in (("x", ["N", 3, 32, 32]), (value, ["N", 10]))]
    graph = helper.make_graph(nodes, "vgg11", tensors[:1], tensors[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def flags_of(series, precision):
    """The numbers' own flags: what has no rate has bits of its updates instead."""
    if precision == "niti":
        return ["--precision", precision] + (["--grad-bits", BITS[series]] if series in BITS else [])
    rate = ["--lr", "0.5" if precision == "wageubn" else RATES[series]]
    return rate if precision == "fp32" else rate + ["--precision", precision]


def command_of(programs, options, series, seed, folder):
    """The command of a row without the precision's flags."""
    fleet = [str(programs / "dunlin-fleet"), "--serve", "--rounds", str(options.rounds)]
    if series == "writers":
        return fleet + ["--clients", "60", "--cohort", "20", "--dataset", "mnist_writers", "--partition", "writers", "--model", "lenet5"]
    if series == "vgg16":
        return fleet + ["--clients", "10", "--cohort", "5", "--partition", "iid", "--model", "vgg16_cifar", "--batch", "32",
                        "--judge-every", "5"] + CIFAR  # fmt: skip
    train = [str(programs / "dunlin-train"), "--epochs", str(options.epochs), "--batch", "64", "--eval"]
    if series == "lenet5":
        return train + ["--model", "lenet5", "--dataset", "fashion_mnist"]
    if series != "vgg11":  # a batch norm of a few examples would have a range of its own
        return train + ["--model", series, "--image", "32", "--classes", "10", "--drop-last"] + CIFAR + WARMUP.get(series, [])
    path = folder / "vgg11.onnx"
    make_vgg(path, seed)
    return train + ["--model", str(path)] + CIFAR


def length_of(options, series):
    epochs = options.rounds if series in FLEETS else options.epochs
    return str(epochs), str(options.examples or EXAMPLES.get(series, "all"))


def processor_s():
    """Of this process, where PyTorch runs, and of the programs that it started."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def run_torch(command, options, series, seed, folder):
    """PyTorch's loss and accuracy from the first weights of our command, and what the command was."""
    import integers_torch

    first = folder / "first.onnx"
    out = folder / "first.json"
    command = command + ["--steps", "1", "--lr", "1e-30", "--save", str(first)]
    subprocess.run(command + ["--json", str(out)], check=True, stdout=subprocess.DEVNULL)
    most = int(options.examples or (20000 if series == "vgg11" else 0))
    loss, accuracy = integers_torch.train(series, first, os.environ["DUNLIN_DATA"], most, options.epochs, 64, float(RATES[series]),
                                          seed, json.loads(out.read_text())["test_loss"])  # fmt: skip
    return command, accuracy, loss


def run(programs, options, series, precision, seed):
    before = processor_s()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        out = folder / "result.json"
        epochs, examples = length_of(options, series)
        command = command_of(programs, options, series, seed, folder) + ["--seed", str(seed)]
        command += ["--max-examples", examples] if examples != "all" else []
        if precision == "torch":
            command, accuracy, loss = run_torch(command, options, series, seed, folder)
        else:
            command += flags_of(series, precision)
            subprocess.run(command + ["--json", str(out)], check=True, stdout=subprocess.DEVNULL)
            result = json.loads(out.read_text())
            accuracy, loss = ((result["rounds"][-1]["accuracy"], result["rounds"][-1]["loss"]) if series in FLEETS else
                              (result["test_accuracy"], result["test_loss"]))  # fmt: skip
    commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"series": series, "precision": precision, "seed": str(seed), "epochs": epochs, "examples": examples,
            "accuracy": "%.4f" % accuracy, "loss": "%.4f" % loss, "cpu_s": "%.1f" % (processor_s() - before),
            "commit": commit.stdout.strip() or "unknown", "date": datetime.date.today().isoformat(),
            "command": " ".join([pathlib.Path(command[0]).name] + command[1:]).replace(name + "/", "")}


def tell(rows, options, series, precision):
    """Points below float32: the mean over the seeds that have both."""
    both = pairs(rows, series, *length_of(options, series), precision)
    apart = [floats - accuracy for _, floats, accuracy in both]
    if apart and precision == "torch":
        print("%s: our float32 is %+.2f points from PyTorch's (%s), bar %.1f either way" %
              (series, sum(apart) / len(apart), ", ".join("%+.2f" % one for one in apart), FROM_TORCH))
    elif apart:
        bar = bar_of(series, precision)
        print("%s, %s: %.2f points below float32 (%s)%s" %
              (series, precision, sum(apart) / len(apart), ", ".join("%.2f" % one for one in apart), bar and ", bar " + bar))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("csv", type=pathlib.Path, nargs="?", default=HERE / "results" / "integers.csv")
    parser.add_argument("--series", default="lenet5,writers,vgg11")
    parser.add_argument("--precisions", default="fp32,niti")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--examples", type=int, default=0)
    options = parser.parse_args()
    series_wanted, precisions = options.series.split(","), options.precisions.split(",")
    for series in series_wanted:
        if series not in BARS:
            parser.error("no series %s; there are: %s" % (series, ", ".join(BARS)))
    for seed in range(1, options.seeds + 1):
        for series in series_wanted:
            for precision in precisions:
                if precision == "torch" and series not in ("vgg11", "lenet5"):
                    continue  # there is no PyTorch of it
                key = [series, precision, str(seed), *length_of(options, series)]
                if any([row[name] for name in KEY] == key for row in kept_rows.read(options.csv)):
                    continue
                row = run(options.programs, options, series, precision, seed)
                kept_rows.append(options.csv, COLUMNS, row)
                print(series, precision, seed, row["accuracy"], flush=True)
    for series in series_wanted:
        for precision in precisions:
            if precision != "fp32":
                tell(kept_rows.read(options.csv), options, series, precision)


if __name__ == "__main__":
    main()
