#!/usr/bin/python3
"""Twenty steps of networks that load, beside PyTorch's in float64 and in float32.

    steps.py PROBE [--count N] [--draw SEED] [--seeds N] [--csv FILE] [NAME...]

For each network and seed: 20 steps of SGD (rate 0.01, momentum 0.9) over 16 random examples in batches of 4, without dropout, from
the same weights. Errors of a run are the largest of |a - b| / max(|b|, 1e-6) over its first three losses and over all of them, and over what the
trained network predicts the largest difference over the largest value; b is PyTorch in float64. The median of the seeds of each may be
1e-5, or four times that of PyTorch's float32. Without names, COUNT networks are drawn by SEED of those that load (results/onnx_networks.csv), have one row of
outputs an example and no image of more than 150 pixels a side. Status 1 if one is beyond that, 77 without PyTorch and torchvision.
FILE is written after each network; those that it has of this commit and command are not run again, rows of others stay.
"""
import argparse
import copy
import csv
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'bench'))
TABLE = HERE.parent / 'bench' / 'results' / 'onnx_networks.csv'
STEPS, BATCH, EXAMPLES, RATE, MOMENTUM = 20, 4, 16, 0.01, 0.9
LARGEST_IMAGE = 150
LEAST_LOSS = 1e-6  # float32's rounding of a sum of logits: of a loss below it no digit is right
FIRST = 3  # where a network is chaotic, later losses say little
FIGURES = ['first_loss_error', 'loss_error', 'output_error']
COLUMNS = ['network', *FIGURES, *[name + '_of_torch_float32' for name in FIGURES], 'within', 'processor', 'commit', 'date', 'command']
LOSSES = {'dense_autoencoder': 'mse', 'wake_word': 'bce'}


def without_dropout(model):
    """Whatever draws random numbers in training: dropout of any kind, and stochastic depth."""
    for module in model.modules():
        for name in ('p', 'dropout', 'drop_rate'):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def loss_of(kind, outputs, answers):
    import torch
    import torch.nn.functional as F

    if kind == 'mse':
        return F.mse_loss(outputs, answers.to(outputs.dtype))
    if kind == 'bce':
        return F.binary_cross_entropy(outputs, answers.to(outputs.dtype))
    ends_in_log_softmax = outputs.detach().exp().sum(1).sub(1).abs().max() < 1e-4
    return F.nll_loss(outputs, answers) if ends_in_log_softmax and torch.all(outputs <= 0) else F.cross_entropy(outputs, answers)


def train_torch(start, kind, inputs, answers, dtype):
    """The losses, and what the trained network predicts."""
    import torch

    model = copy.deepcopy(start).to(dtype).train()
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE, MOMENTUM)
    losses = []
    for step in range(STEPS):
        at = [(step * BATCH + i) % EXAMPLES for i in range(BATCH)]
        optimizer.zero_grad()
        loss = loss_of(kind, model(*[x[at] for x in inputs]), answers[at])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, model.eval()(*inputs).double().numpy()


def export(model, network, path):
    """With the weights as they are: exporting moves running statistics."""
    import networks
    import onnx
    from onnx import numpy_helper

    state = copy.deepcopy(model.state_dict())
    mode, complaint = networks.export(model, network, path)
    model.load_state_dict(state)
    if mode != 'train':
        return 'PyTorch cannot export it for training: ' + complaint
    file = onnx.load(path)
    for tensor in file.graph.initializer:
        if tensor.name in state:
            tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    stored = {tensor.name for tensor in file.graph.initializer}
    if trained <= stored:  # buffers are not trained; of a weight that two names have the file has one
        onnx.helper.set_model_props(file, {'dunlin.trained': '\n'.join(sorted(trained))})
    onnx.save(file, path)
    return ''


def train_ours(program, path, folder, kind, inputs, answers):
    import numpy as np

    rows = np.concatenate([x.reshape(EXAMPLES, -1).numpy().astype(np.float32) for x in inputs], 1)
    rows.tofile(os.path.join(folder, 'examples.f32'))
    answers.numpy().astype(np.int32 if kind == 'cross-entropy' else np.float32).tofile(os.path.join(folder, 'answers'))
    done = subprocess.run([program, path, folder, kind, str(BATCH), str(STEPS), str(RATE), str(MOMENTUM)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    outputs = np.fromfile(os.path.join(folder, 'outputs.f32'), np.float32)
    return [float(line) for line in done.stdout.split()], outputs.reshape(EXAMPLES, -1)


def errors(run, exact):
    import numpy as np

    losses = [abs(a - b) / max(abs(b), LEAST_LOSS) for a, b in zip(run[0], exact[0])]
    return max(losses[:FIRST]), max(losses), float(np.abs(run[1].reshape(exact[1].shape) - exact[1]).max() / np.abs(exact[1]).max())


def is_within(result):
    return all(ours <= max(1e-5, 4 * theirs) for ours, theirs in zip(result[: len(FIGURES)], result[len(FIGURES) :]))


def compare(program, network, n_seeds):
    """Medians of the seeds: our errors, then those of PyTorch's float32; or what stood in the way."""
    results = []
    for result in compare_seeds(program, network, n_seeds):
        if isinstance(result, str):
            return result
        results.append(result)
    return [statistics.median(column) for column in zip(*results)]


def compare_seeds(program, network, n_seeds):
    """Seed by seed what compare() takes the median of; what stood in the way ends it."""
    import networks
    import torch

    kind = LOSSES.get(network.name, 'cross-entropy')
    if network.outputs > 1:
        yield 'it has %d outputs' % network.outputs
        return
    for seed in range(n_seeds):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(1000 + seed)
        model = without_dropout(network.make())
        inputs = networks.draw(network, EXAMPLES, generator)
        with torch.no_grad():
            shape = copy.deepcopy(model).train()(*inputs).shape
        if len(shape) != 2:
            yield 'it has an output of %d dimensions' % len(shape)
            return
        answers = torch.randint(0, shape[1], (EXAMPLES,), generator=generator)
        answers = answers if kind == 'cross-entropy' else torch.rand(shape, generator=generator)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, network.name + '.onnx')
            try:
                complaint = export(model, network, path)
                if complaint:
                    yield complaint
                    return
                run = train_ours(program, path, folder, kind, inputs, answers)
            except RuntimeError as error:
                yield str(error)
                return
        exact = train_torch(model, kind, inputs, answers, torch.float64)
        yield errors(run, exact) + errors(train_torch(model, kind, inputs, answers, torch.float32), exact)


def has_one_row(network):
    """One output, of a row an example."""
    import networks
    import torch

    if network.outputs > 1:
        return False
    with torch.no_grad():
        return len(network.make().train()(*networks.draw(network, 2, torch.Generator().manual_seed(1))).shape) == 2


def drawn(known, count, seed):
    """`count` of the networks that load."""
    with TABLE.open(newline='') as file:
        loaded = {row['network'] for row in csv.DictReader(file) if row['loads'] == 'yes' and row['export'] == 'train'}
    fit = [one for one in known if one.name in loaded and max(one.inputs[0].shape, default=0) <= (
        LARGEST_IMAGE if len(one.inputs[0].shape) == 3 else 10000)]  # fmt: skip
    chosen = set()
    for one in random.Random(seed).sample(fit, len(fit)):
        if len(chosen) < count and has_one_row(one):
            chosen.add(one.name)
    return [one for one in fit if one.name in chosen]


def write(path, rows):
    """Whole or not at all."""
    if path:
        with open(path + '.part', 'w', newline='') as file:
            csv.writer(file, lineterminator='\n').writerows([COLUMNS, *rows])
        os.replace(path + '.part', path)


def kept(path):
    """The rows of a file, by network."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, newline='') as file:
        rows = list(csv.reader(file))[1:]
    return {row[0]: row for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--count', type=int, default=12)
    parser.add_argument('--draw', type=int, default=1)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--csv')
    args = parser.parse_intermixed_args()
    try:
        import networks
        import torch
    except ImportError as error:
        print('skipped: %s' % error)
        return 77
    import figures

    torch.set_num_threads(1)
    known = networks.all_networks()
    if set(args.names) - {one.name for one in known}:
        sys.exit('steps.py: there is no %s' % ', '.join(sorted(set(args.names) - {one.name for one in known})))
    chosen = [one for one in known if one.name in args.names] if args.names else drawn(known, args.count, args.draw)
    made = [figures.processor(), figures.git('rev-parse', '--short', 'HEAD'), str(figures.datetime.date.today()),
            'tests/models/steps.py build/release/tests/models_probe --count %d --draw %d --seeds %d' % (args.count, args.draw, args.seeds)]  # fmt: skip
    rows = kept(args.csv)
    for network in chosen:
        if network.name in rows and (rows[network.name][-3], rows[network.name][-1]) == (made[1], made[3]):
            continue
        result = compare(args.program, network, args.seeds)
        if isinstance(result, str):
            print('%-36s FAILED: %s' % (network.name, result), flush=True)
            rows[network.name] = [network.name, *[''] * (2 * len(FIGURES)), 'no', *made]
            write(args.csv, rows.values())
            continue
        ours, theirs = result[: len(FIGURES)], result[len(FIGURES) :]
        within = is_within(result)
        rows[network.name] = [network.name, *['%.1e' % figure for figure in result], 'yes' if within else 'no', *made]
        told = '  '.join('%.1e (%.1e)' % pair for pair in zip(ours, theirs))
        print('%-36s first losses, losses, outputs: ours (float32) %s  %s' % (network.name, told, 'ok' if within else 'TOO FAR'), flush=True)
        write(args.csv, rows.values())
    return 0 if all(rows[one.name][2 * len(FIGURES) + 1] == 'yes' for one in chosen) else 1


if __name__ == '__main__':
    sys.exit(main())
