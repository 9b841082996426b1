#!/usr/bin/python3
"""Trains a fixed dozen of PyTorch's exports with dunlin-train and the networks themselves with PyTorch, in turn, on one core.

    onnx_dozen.py DUNLIN-TRAIN [--rounds N] [--seconds F] [--core N] [--csv FILE] [NAME...]

Each round runs ours, PyTorch in NCHW and PyTorch in channels_last (images), as processes of their own, pinned, PyTorch set up as
in compare_torch.py. A step's time is the median within a process; of the rounds the median, of PyTorch's layouts the faster. Of
processor time rather than of the clock, since the machine may be shared (both are in the table). Memory is each process's own high-water mark
above its start, the examples included; "above" is that without weights and momentum, which both have. FILE is written after each network; those that
it has of this commit and command are not run again. Needs python3-torch and python3-torchvision: status 77 without.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'models'))
sys.path.insert(0, str(HERE))
IMAGE, IMAGE_BATCH, SIGNAL_BATCH = 224, 8, 32
DOZEN = ['mobilenet_v2', 'mobilenet_v3_small', 'shufflenet_v2_x1_0', 'regnet_y_400mf', 'resnet18', 'squeezenet1_0', 'googlenet', 'ds_cnn',
         'raw_sound_m5', 'ecg_resnet', 'eegnet', 'har_fcn']  # fmt: skip
COLUMNS = ['network', 'input', 'batch', 'parameters', 'ours_cpu_ms', 'torch_cpu_ms', 'speed', 'ours_ms', 'torch_ms', 'torch_layout', 'ours_mib',
           'torch_mib', 'ours_above_mib', 'torch_above_mib', 'memory_above', 'processor', 'version', 'commit', 'date', 'command']  # fmt: skip
MIB = 1048576.0
WARM_UP = 2


def network_of(name):
    """The network, at the size that it is timed at, and its batch."""
    import networks

    found = next(one for one in networks.all_networks() if one.name == name)
    if found.kind == networks.IMAGE and len(found.inputs[0].shape) == 3:
        return found._replace(inputs=[networks.Input((3, IMAGE, IMAGE))]), IMAGE_BATCH
    return found, SIGNAL_BATCH


def torch_side(name, layout, seconds):
    """Prints what PyTorch takes, as one line of JSON; a process of its own."""
    import torch
    import torch_step

    functional = torch.nn.functional
    torch.set_num_threads(1)
    network, batch = network_of(name)
    warm = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    functional.cross_entropy(warm(torch.randn(2, 3, 8, 8)), torch.tensor([0, 1])).backward()
    torch_step.blas_core()
    pathlib.Path('/proc/self/clear_refs').write_text('5')
    base_kib = torch_step.status_kib('VmRSS')
    torch.manual_seed(0)
    model = network.make().train()
    x = torch.randn(batch, *network.inputs[0].shape)
    if layout == 'nhwc':
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    times, begun = [], None
    y = None
    while len(times) < WARM_UP + 3 or time.perf_counter() - begun < seconds:
        begin, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        outputs = model(x)
        y = torch.randint(0, outputs.shape[1], (batch,)) if y is None else y
        loss = functional.cross_entropy(outputs, y)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append((time.perf_counter() - begin, time.process_time() - cpu))
        begun = time.perf_counter() if len(times) == WARM_UP else begun
    print(json.dumps({'ms': 1e3 * statistics.median(wall for wall, _ in times[WARM_UP:]),
                      'cpu_ms': 1e3 * statistics.mean(cpu for _, cpu in times[WARM_UP:]),
                      'bytes': (torch_step.status_kib('VmHWM') - base_kib) * 1024, 'version': torch.__version__,
                      'parameters': sum(p.numel() for p in model.parameters())}))  # fmt: skip


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ['status %d' % done.returncode])[-1])
    return json.JSONDecoder().raw_decode(done.stdout, done.stdout.index('{'))[0]


def middle(runs, key):
    return statistics.median(one[key] for one in runs)


def ours_side(args, path, batch):
    """Milliseconds a step of the clock (median) and of the processor (mean), and the bytes that the process grew by."""
    def train(n_steps, log):
        return run(['taskset', '-c', str(args.core), args.program, '--model', path, '--dataset', 'random', '--batch', str(batch),
                    '--steps', str(n_steps), '--max-examples', str(2 * batch), '--threads', '1', '--lr', '0.001', '--log', log,
                    '--json', '-'])  # fmt: skip

    log = path + '.csv'
    n_steps = min(max(int(1e3 * args.seconds / train(2, log)['step_ms_median']), 5), 1000) + WARM_UP
    result = train(n_steps, log)
    with open(log, newline='') as file:
        cpu = [float(row['cpu_s']) for row in csv.DictReader(file)]
    cpu_ms = 1e3 * (cpu[-1] - cpu[WARM_UP - 1]) / (len(cpu) - WARM_UP)
    return {'ms': result['step_ms_median'], 'cpu_ms': cpu_ms, 'bytes': result['rss_growth_bytes']}


def measure(args, name):
    """A row of the table, without who made it."""
    import compare_torch
    import networks
    import torch

    network, batch = network_of(name)
    is_image = len(network.inputs[0].shape) == 3
    environment = dict(os.environ, **compare_torch.blas_core())
    environment.update(GLIBC_TUNABLES=compare_torch.TUNABLES, OPENBLAS_NUM_THREADS='1', OMP_NUM_THREADS='1')
    ours, theirs = [], {layout: [] for layout in (('nchw', 'nhwc') if is_image else ('nchw',))}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + '.onnx')
        torch.manual_seed(0)
        mode, complaint = networks.export(network.make(), network, path)
        if mode != 'train':
            raise RuntimeError('PyTorch cannot export it for training: ' + complaint)
        for _ in range(args.rounds):
            ours.append(ours_side(args, path, batch))
            for layout, runs in theirs.items():
                runs.append(run(['taskset', '-c', str(args.core), sys.executable, __file__, args.program, '--side', layout, '--seconds',
                                 str(args.seconds), name], environment))  # fmt: skip
    layout = min(theirs, key=lambda one: middle(theirs[one], 'cpu_ms'))
    best = theirs[layout]
    kept = 8 * best[0]['parameters']  # weights and momentum
    our_bytes = max(one['bytes'] for one in ours)
    their_bytes = min(max(one['bytes'] for one in runs) for runs in theirs.values())
    our_ms, their_ms = middle(ours, 'cpu_ms'), middle(best, 'cpu_ms')
    size = 'x'.join(map(str, network.inputs[0].shape))
    return [name, size, batch, best[0]['parameters'], '%.4g' % our_ms, '%.4g' % their_ms, '%.2f' % (their_ms / our_ms),
            '%.4g' % middle(ours, 'ms'), '%.4g' % middle(best, 'ms'), layout, '%.1f' % (our_bytes / MIB), '%.1f' % (their_bytes / MIB),
            '%.1f' % ((our_bytes - kept) / MIB), '%.1f' % ((their_bytes - kept) / MIB),
            '%.2f' % ((our_bytes - kept) / (their_bytes - kept)), best[0]['version']]  # fmt: skip


def write(path, rows):
    """Whole or not at all."""
    with open(path + '.part', 'w', newline='') as file:
        csv.writer(file, lineterminator='\n').writerows([COLUMNS, *rows])
    os.replace(path + '.part', path)


def kept(path):
    """The rows of a file, by network."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, newline='') as file:
        return {row[0]: row for row in list(csv.reader(file))[1:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=4.0, help='of timed steps a process, about')
    parser.add_argument('--core', type=int, default=1)
    parser.add_argument('--csv')
    parser.add_argument('--side', choices=['nchw', 'nhwc'], help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()
    try:
        import networks  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        print('skipped: %s' % error)
        return 77
    if args.side:
        torch_side(args.names[0], args.side, args.seconds)
        return 0
    import figures

    if set(args.names) - set(DOZEN):
        sys.exit('onnx_dozen.py: %s: not one of the dozen' % ', '.join(sorted(set(args.names) - set(DOZEN))))
    made = [figures.git('rev-parse', '--short', 'HEAD'), str(figures.datetime.date.today()),
            'tests/bench/onnx_dozen.py build/release/bin/dunlin-train --rounds %d --seconds %g' % (args.rounds, args.seconds)]  # fmt: skip
    rows = kept(args.csv)
    status = 0
    for name in [one for one in DOZEN if not args.names or one in args.names]:
        if name in rows and (rows[name][-3], rows[name][-1]) == (made[0], made[2]):
            continue
        try:
            row = measure(args, name)
        except RuntimeError as error:
            print('%-20s not measured: %s' % (name, error), flush=True)
            status = 1
            continue
        rows[name] = [*row[:-1], figures.processor(), row[-1], *made]
        print('%-20s %s x %2s: processor ms a step %s, PyTorch %s (%s): %s x; MiB %s, %s; above weights %s, %s: %s'
              % (name, row[1], row[2], row[4], row[5], row[9], row[6], *row[10:15]), flush=True)  # fmt: skip
        if args.csv:
            write(args.csv, [rows[one] for one in DOZEN if one in rows])
    return status


if __name__ == '__main__':
    sys.exit(main())
