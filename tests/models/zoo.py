#!/usr/bin/python3
"""The ready-made networks beside torchvision's of the same names: the same losses and outputs from the same weights.

    zoo.py DUNLIN-TRAIN PROBE [--seeds N] [NAME...]

dunlin-train writes each network as an ONNX file; its weights are replaced by name with those of torchvision's network, its dropout
ratios by 0, and both train one step, which must not differ more than steps.py allows for one of the seeds: a wrong graph is wrong for
all of them. For some seeds one of a network's million inputs of ReLUs is nearer to 0 than float32 can tell: its sign falls as the
rounding has it, here or in PyTorch, and the gradients before it differ by some thousandths (ResNet-34, seed 2: with that one sign turned round in
float64 the largest error of a first weight's step falls from 3.9e-3 to 8.4e-6). Status 1 if none is within it, 77 without PyTorch and torchvision.
"""
import argparse
import os
import subprocess
import sys

import steps

CLASSES = 10
# The smallest images that say the same as large ones.
IMAGES = {'alexnet': 63, 'inception_v3': 107}
NETWORKS = ['mobilenet_v2', 'mobilenet_v3_small', 'mobilenet_v3_large', 'efficientnet_b0', 'resnet18', 'resnet34', 'resnet50', 'resnet101',
            'densenet121', 'alexnet', 'vgg11', 'vgg13', 'vgg16', 'vgg19', 'vgg11_bn', 'vgg13_bn', 'vgg16_bn', 'vgg19_bn', 'squeezenet1_1',
            'googlenet', 'inception_v3', 'shufflenet_v2_x0_5', 'shufflenet_v2_x1_0', 'ds_cnn', 'har_fcn']  # fmt: skip


def write_zoo(program, name, image, path):
    """Our network as a file; raises with what the program says."""
    shape = ['--dataset', 'random'] if image is None else ['--image', str(image), '--data', 'synthetic']
    command = [program, '--model', name, *shape, '--classes', str(CLASSES), '--batch', '2', '--max-examples', '2', '--steps', '1', '--save', path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or not os.path.exists(path):
        raise RuntimeError(done.stderr.strip() or 'no file was written')


def take_weights(model, path):
    """torchvision's into the file, by name; '' or what differs."""
    import onnx
    from onnx import numpy_helper

    file = onnx.load(path)
    state = {name: value for name, value in model.state_dict().items() if not name.endswith('num_batches_tracked')}
    ratios = {node.input[1] for node in file.graph.node if node.op_type == 'Dropout'}
    found = set()
    for tensor in file.graph.initializer:
        if tensor.name in state:
            if list(tensor.dims) != list(state[tensor.name].shape):
                return '%s is %s here, %s there' % (tensor.name, list(tensor.dims), list(state[tensor.name].shape))
            tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
            found.add(tensor.name)
        elif tensor.name in ratios:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 0, tensor.name))
    onnx.save(file, path)
    return '' if found == set(state) else 'not in the file: %s' % ', '.join(sorted(set(state) - found))


def network_of(name):
    import networks
    import sensors

    if name == 'ds_cnn':
        return networks.Network(name, networks.SENSOR, lambda: sensors.DsCnn(CLASSES), [networks.Input((1, 32, 32))]), 32
    if name == 'har_fcn':
        return networks.Network(name, networks.SENSOR, lambda: sensors.HarFcn(CLASSES), [networks.Input((6, 128))]), None
    options = {'aux_logits': False, 'init_weights': False} if name in ('googlenet', 'inception_v3') else {}
    image = IMAGES.get(name, 32 if name.startswith('vgg') else 64)
    return networks.Network(name, networks.IMAGE, networks.vision(name, **options), [networks.Input((3, image, image))]), image


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('probe')
    parser.add_argument('names', nargs='*')
    parser.add_argument('--seeds', type=int, default=3)
    args = parser.parse_intermixed_args()
    try:
        import networks  # noqa: F401
        import torch
    except ImportError as error:
        print('skipped: %s' % error)
        return 77
    torch.set_num_threads(1)
    steps.STEPS = steps.FIRST = 1  # a second one tells less: with batch norm over four examples small errors grow fast
    status = 0
    for name in args.names or NETWORKS:
        network, image = network_of(name)

        def make_file(model, _, path):
            write_zoo(args.program, name, image, path)
            return take_weights(model, path)

        steps.export = make_file
        for result in steps.compare_seeds(args.probe, network, args.seeds):
            text = result if isinstance(result, str) else '  '.join('%.1e (%.1e)' % pair for pair in zip(result[1:3], result[4:6]))
            is_good = not isinstance(result, str) and steps.is_within(result)
            print('%-20s losses, outputs: ours (float32) %s  %s' % (name, text, 'ok' if is_good else 'not within'), flush=True)
            if is_good:
                break
        else:
            print('%-20s FAILED: not within it for any seed' % name, flush=True)
        status = status if is_good else 1
    return status


if __name__ == '__main__':
    sys.exit(main())
