"""The rows of results/integers.csv, which integers.py appends: what of them belongs together, and their bars."""
BARS = {"vgg11": 2.7, "lenet5": 1.0, "writers": 2.2}  # points below float32 at most, of niti
FROM_TORCH = 2.0  # points that our float32 is from PyTorch's at most, either way


def pairs(rows, series, epochs, examples, precision):
    """(seed, accuracy in float32, accuracy) in percent, of the seeds that have both."""
    found = {(row["precision"], row["seed"]): 100.0 * float(row["accuracy"]) for row in rows
             if (row["series"], row["epochs"], row["examples"]) == (series, epochs, examples)}
    return [(seed, found["fp32", seed], accuracy) for (name, seed), accuracy in sorted(found.items())
            if name == precision and ("fp32", seed) in found]
