#!/usr/bin/python3
"""Which of the networks that people train load: each is exported by PyTorch and opened by dunlin-train --list.

    report.py DUNLIN-TRAIN [--csv FILE] [--against FILE] [--keep FOLDER] [NAME...]

Prints a table (name, kind, export, loads, what stands in the way) and the sums by kind; --keep leaves the files in a folder.
--csv with names replaces or adds their rows in a file that is there.
With --against, status 1 if a network does not load that does in that table, or is not in it. Status 77 without PyTorch and torchvision (Debian: python3-torch, python3-torchvision).
"""
import argparse
import collections
import csv
import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'bench'))
COLUMNS = ['network', 'kind', 'export', 'loads', 'causes', 'processor', 'commit', 'date', 'command']


def cause(line):
    """'HardSwish: the operator is not supported (19 nodes, first ...)' without the nodes."""
    line = re.sub(r" \((node '[^']*'|\d+ nodes, first '[^']*')\).*$", '', line.strip())
    return line.replace(': the operator is not supported', '')


def load(program, path, flags=()):
    """Whether it loads, and what stands in the way; `flags`: the sizes that the file leaves open."""
    done = subprocess.run([program, '--model', path, *flags, '--list'], capture_output=True, text=True)
    if done.returncode == 0:
        return 'yes', ''
    lines = [line for line in done.stderr.splitlines() if line.startswith('  ')]
    if not lines:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'status %d' % done.returncode
        return 'no', last.replace('dunlin-train: ', '').replace(path + ': ', '')
    return 'no', '; '.join(cause(line) for line in lines)


def flags(outputs):
    """Several outputs are all trained."""
    return ['--outputs', ','.join(outputs)] if len(outputs) > 1 else []


def lost(table, rows):
    """Names the networks that the table has as loaded and that do not load, and those that it does not have; the status."""
    with open(table, newline='') as file:
        before = {row['network']: row['loads'] for row in csv.DictReader(file)}
    failures = ['%s is not in %s' % (row[0], table) for row in rows if row[0] not in before]
    failures += ['%s loads no more: %s' % (row[0], row[4]) for row in rows if before.get(row[0]) == 'yes' and row[3] != 'yes']
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def write(path, rows, order):
    """The rows; with `order`, the names of all networks, among the others that the file has."""
    if order and os.path.exists(path):
        with open(path, newline='') as file:
            rows = list({row[0]: row for row in [*list(csv.reader(file))[1:], *rows]}.values())
        rows.sort(key=lambda row: order.index(row[0]) if row[0] in order else len(order))
    with open(path, 'w', newline='') as file:
        csv.writer(file, lineterminator='\n').writerows([COLUMNS, *rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--csv')
    parser.add_argument('--against')
    parser.add_argument('--keep')
    args = parser.parse_intermixed_args()
    try:
        import torch

        import networks
    except ImportError as error:
        print('skipped: %s' % error)
        return 77
    import figures

    torch.manual_seed(0)
    torch.set_num_threads(1)
    known = networks.all_networks()
    unknown = set(args.names) - {one.name for one in known}
    if unknown:
        sys.exit('report.py: there is no %s' % ', '.join(sorted(unknown)))
    rows, sums = [], collections.OrderedDict()
    made = [figures.processor(), figures.git('rev-parse', '--short', 'HEAD'), str(datetime.date.today()),
            'tests/models/report.py build/release/bin/dunlin-train']  # fmt: skip
    for network in known:
        if args.names and network.name not in args.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(args.keep or folder, network.name + '.onnx')
            mode, complaint = networks.export(network.make(), network, path)
            loads, causes = load(args.program, path, flags(networks.output_names(network))) if mode else ('no', 'PyTorch cannot export it: ' + complaint)
        rows.append([network.name, network.kind, mode or 'none', loads, causes, *made])
        print('%-36s %-22s %-5s %-3s %s' % tuple(rows[-1][:5]), flush=True)
        total = sums.setdefault(network.kind, [0, 0])
        total[0] += loads == 'yes'
        total[1] += 1
    for kind, (good, total) in sums.items():
        print('%-22s %d of %d' % (kind, good, total))
    print('%-22s %d of %d' % ('all', sum(good for good, _ in sums.values()), len(rows)))
    if args.csv:
        write(args.csv, rows, [one.name for one in known] if args.names else [])
    return lost(args.against, rows) if args.against else 0


if __name__ == '__main__':
    sys.exit(main())
