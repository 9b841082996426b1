"""PyTorch's networks as ONNX files, and what PyTorch makes of them: logits, losses, changes (onnx_nets.py)."""
import copy
import os
import struct

import numpy as np
import onnx
import torch
import torch.nn as nn
from make_nets import VARIANTS, project
from onnx import numpy_helper


def export(model, inputs, path, opset, state=None):
    """Returns the names of the weights; `state`: their values, else the file's."""
    names = {1: ['x'], 2: ['a', 'b'], 3: ['input_ids', 'attention_mask', 'token_type_ids']}[len(inputs)]
    axes = {name: {0: 'N'} for name in names + ['y']}
    torch.onnx.export(model, inputs, path, opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=names, output_names=['y'], dynamic_axes=axes)
    made = onnx.load(path)
    for node in made.graph.node:
        node.doc_string = ''
    if state is not None:
        model.load_state_dict(state)
        for tensor in made.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
    # Exporting runs the network, which moves running statistics: the file's values count.
    state = model.state_dict()
    for tensor in made.graph.initializer:
        if tensor.name in state:
            value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            state[tensor.name].copy_(value.reshape(state[tensor.name].shape))
    onnx.save(made, path)
    return [t.name for t in made.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]


def stored(tensor):
    return tensor.detach().double().numpy().ravel()


def run(model, inputs, labels, names, lr, n_steps, dtype, variant):
    """Logits with running statistics; losses and changes of n_steps steps."""
    order, is_last, is_onednn = variant
    model = copy.deepcopy(model).to(dtype)
    n = labels.shape[0]
    turned = (torch.arange(n) + order) % n
    inputs = [t[turned].to(dtype) if t.is_floating_point() else t[turned] for t in inputs]
    if is_last and inputs[0].dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        inputs = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in inputs]
    with torch.backends.mkldnn.flags(enabled=is_onednn):
        model.eval()
        with torch.no_grad():
            logits = stored(model(*inputs)[torch.argsort(turned)])
        model.train()
        state = model.state_dict()
        before = {name: stored(state[name]).copy() for name in names if name in state}
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        losses = []
        for _ in range(n_steps):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(getattr(model, 'before', model)(*inputs), labels[turned])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return logits, np.array(losses), {name: stored(state[name]) - old for name, old in before.items()}


def expect(model, inputs, labels, names, path, n_steps, lr, variants=VARIANTS, switch=0.0, constants=None):
    """Dropout is off, batch norm by the batch. `constants`: parameters of ours that the module has not, which stay."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    logits, losses, deltas = run(model, inputs, labels, names, lr, n_steps, torch.float64, VARIANTS[0])
    errors = dict.fromkeys(deltas, 0.0)
    logit_error, loss_error, whole_error = 0.0, 0.0, np.zeros(2)
    for variant in variants:
        rough = run(model, inputs, labels, names, lr, n_steps, torch.float32, variant)
        logit_error = max(logit_error, np.abs(rough[0] - logits).max())
        loss_error = max(loss_error, np.abs(rough[1] - losses).max())
        whole = np.zeros(2)
        for name, delta in deltas.items():
            off = np.linalg.norm(rough[2][name] - delta)
            errors[name] = max(errors[name], off)
            whole[int('running_' in name)] += off ** 2
        whole_error = np.maximum(whole_error, np.sqrt(whole))
    moved = np.sqrt(sum(np.square(d).sum() for name, d in deltas.items() if 'running_' not in name))
    whole_error[0] = max(whole_error[0], switch * moved)
    print('%s: loss %.4f to %.4f, float32 is off by %.2g of what has moved' %
          (os.path.basename(path), losses[0], losses[-1], whole_error[0] / moved), flush=True)
    for name, length in (constants or {}).items():
        deltas[name], errors[name] = np.zeros(length), 0.0
    n = labels.shape[0]
    x = np.concatenate([t.numpy().reshape(n, -1).astype(np.float32) for t in inputs], axis=1)
    with open(path, 'wb') as file:
        # Labels of an example less one, above the steps.
        steps = n_steps | (labels[0].numel() - 1) << 16
        file.write(struct.pack('<5if', n, x.shape[1], logits.size // n, steps, len(deltas), lr))
        file.write(x.tobytes())
        file.write(labels.numpy().astype('<i4').tobytes())
        file.write(np.array([*logits, *losses, logit_error, loss_error, *whole_error], dtype='<f8').tobytes())
        for index, (name, delta) in enumerate(deltas.items()):
            file.write(struct.pack('<i', len(name)) + name.encode())
            file.write(np.array([*project(index, delta), np.linalg.norm(delta), errors[name]], dtype='<f8').tobytes())


def make(model, inputs, n_classes, folder, name, opset, n_steps=3, lr=0.05):
    torch.manual_seed(len(name))
    model.train()
    labels = torch.arange(inputs[0].shape[0]) % n_classes
    names = export(model, inputs, os.path.join(folder, name + '.onnx'), opset)
    expect(model, inputs, labels, names, os.path.join(folder, name + '.expect'), n_steps, lr)
