"""The rows of results/integers.csv, which integers.py appends: what of them belongs together, and their bars."""
NAMES = {"lenet5": "LeNet-5, Fashion-MNIST", "vgg11": "VGG-11, CIFAR-10 (JPEG)", "writers": "LeNet-5, MNIST by writer, federated",
         "mobilenet_v2": "MobileNetV2, CIFAR-10 (JPEG)", "resnet18": "ResNet-18, CIFAR-10 (JPEG)",
         "vgg16": "VGG-16, CIFAR-10 (JPEG), federated"}  # fmt: skip
PRODUCTS = ("mobilenet_v2", "resnet18", "vgg16")  # of the precisions that multiply integers and keep float32 weights
BARS = {"vgg11": 2.7, "lenet5": 1.0, "writers": 2.2, "mobilenet_v2": 1.0, "resnet18": 1.9, "vgg16": 2.8}  # points below float32 at most
FROM_TORCH = 2.0  # points that our float32 is from PyTorch's at most, either way


def bar_of(series, precision):
    """The most points below float32, as text; of the first three series it is niti's, of the others that of the best row. "": none."""
    if precision == "torch":
        return "%.1f either way" % FROM_TORCH
    return "%.1f" % BARS[series] if (precision == "niti") == (series not in PRODUCTS) else ""


def pairs(rows, series, epochs, examples, precision):
    """(seed, accuracy in float32, accuracy) in percent, of the seeds that have both."""
    found = {(row["precision"], row["seed"]): 100.0 * float(row["accuracy"]) for row in rows
             if (row["series"], row["epochs"], row["examples"]) == (series, epochs, examples)}
    return [(seed, found["fp32", seed], accuracy) for (name, seed), accuracy in sorted(found.items())
            if name == precision and ("fp32", seed) in found]
