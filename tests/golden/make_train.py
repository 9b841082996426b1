#!/usr/bin/env python3
"""Makes data/train.golden with PyTorch in float64: losses and their gradients, learning rates, and a small network after
ten steps of every optimiser, with clipping and schedules. The format and the `.error` are those of make_golden.py.

Run as `python3 make_train.py` in this folder. A setting is an array of numbers, in the order of SETTING, so that the
test sets the same options.
"""

import warnings

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import File, draw

N_STEPS, BATCH, N_INPUTS, N_OUTPUTS, N_ORDERS = 10, 6, 5, 7, 8

# loss 0 cross-entropy, 1 squared, 2 binary, 3 cross-entropy with shares; optimiser 0 SGD, 1 Adam, 2 AdamW; schedule as dunlin_schedule_kind
SETTING = ("loss", "smoothing", "optimizer", "lr", "momentum", "nesterov", "decay", "clip_value", "clip_norm",
           "schedule", "warmup", "period", "total", "gamma", "min_lr")
DEFAULT = dict.fromkeys(SETTING, 0.0)

CASES = {
    "sgd": {"lr": 0.5},
    "momentum": {"lr": 0.1, "momentum": 0.9, "decay": 0.01, "smoothing": 0.1},
    "nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": 1, "decay": 0.01, "loss": 1},
    "adam": {"lr": 0.02, "optimizer": 1},
    "adam_decay": {"lr": 0.02, "optimizer": 1, "decay": 0.05, "loss": 2},
    "adamw": {"lr": 0.02, "optimizer": 2, "decay": 0.5, "smoothing": 0.2},
    "clip_value": {"lr": 0.5, "clip_value": 0.01},
    "clip_norm": {"lr": 0.5, "clip_norm": 0.2, "momentum": 0.9, "loss": 1},
    "clip_both": {"lr": 0.02, "optimizer": 1, "clip_value": 0.02, "clip_norm": 0.1, "loss": 2},
    "large_norm": {"lr": 0.5, "clip_norm": 1e6},
    "warm_cosine": {"lr": 0.05, "optimizer": 2, "decay": 0.1, "clip_norm": 0.3, "schedule": 3, "warmup": 3, "total": 9,
                    "min_lr": 0.001},
}

SCHEDULES = {
    "constant": {"warmup": 4},
    "step": {"schedule": 1, "period": 5, "gamma": 0.3},
    "warm_step": {"schedule": 1, "period": 3, "gamma": 0.5, "warmup": 7},
    "exponential": {"schedule": 2, "gamma": 0.9},
    "warm_exponential": {"schedule": 2, "gamma": 0.8, "warmup": 2},
    "cosine": {"schedule": 3, "total": 24, "min_lr": 0.01},
    "warm_cosine": {"schedule": 3, "total": 24, "warmup": 5},
    "linear": {"schedule": 4, "total": 24, "min_lr": 0.02},
    "warm_linear": {"schedule": 4, "total": 24, "warmup": 6},
}


def make_scheduler(optimizer, s):
    total = int(s["total"] - s["warmup"])
    kind = int(s["schedule"])
    if kind == 1:
        main = torch.optim.lr_scheduler.StepLR(optimizer, int(s["period"]), s["gamma"])
    elif kind == 2:
        main = torch.optim.lr_scheduler.ExponentialLR(optimizer, s["gamma"])
    elif kind == 3:
        main = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total, s["min_lr"])
    elif kind == 4:
        main = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, s["min_lr"] / s["lr"], total)
    else:
        main = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0, 1)
    if s["warmup"] == 0:
        return main
    for group in optimizer.param_groups:
        group["lr"] = s["lr"]
    n = int(s["warmup"])
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0 / (n + 1), 1.0, n)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, main], [n])


def make_rates(file):
    for name, changes in SCHEDULES.items():
        s = dict(DEFAULT, lr=0.5, **changes)
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=s["lr"])
        scheduler = make_scheduler(optimizer, s)
        rates = []
        # CosineAnnealingLR goes up again after its end, where ours stays
        for _ in range(int(s["total"]) + 1 if s["schedule"] == 3 else 30):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        file.add("rates/" + name, np.array([s[key] for key in SETTING]), np.float64)
        file.add("rates/" + name + ".lr", np.array(rates), np.float64)


def loss_of(s, y, t):
    if s["loss"] == 0:
        return F.cross_entropy(y, t, label_smoothing=s["smoothing"])
    return F.mse_loss(y, t) if s["loss"] == 1 else F.binary_cross_entropy_with_logits(y, t)


def make_losses(file):
    """Rows of outputs, answers, weights; the weighted mean's value and its gradient."""
    n, classes = 7, 9
    y = draw(n, classes, low=-4, high=4)
    y[3] *= 20
    labels = torch.randint(0, classes, (n,))
    weights = draw(n, low=0.25, high=2)
    targets = {1: draw(n, classes, low=-3, high=3), 2: draw(n, classes, low=0, high=1)}
    targets[2][0] = (targets[2][0] > 0.5).double()
    file.add("loss/y", y, np.float32)
    file.add("loss/labels", labels, np.int32)
    file.add("loss/weights", weights, np.float32)
    for kind in (1, 2):
        file.add(f"loss/targets{kind}", targets[kind], np.float32)
    for kind, smoothing in ((0, 0.0), (0, 0.25), (1, 0.0), (2, 0.0), (3, 0.0), (3, 0.25)):
        leaf = y.clone().requires_grad_(True)
        if kind == 0:
            rows = F.cross_entropy(leaf, labels, label_smoothing=smoothing, reduction="none")
        elif kind == 3:
            rows = F.cross_entropy(leaf, targets[2], label_smoothing=smoothing, reduction="none")
        elif kind == 1:
            rows = F.mse_loss(leaf, targets[1], reduction="none").mean(1)
        else:
            rows = F.binary_cross_entropy_with_logits(leaf, targets[2], reduction="none").mean(1)
        value = (rows * weights).sum() / weights.sum()
        value.backward()
        name = "loss/" + ("ce", "mse", "bce", "soft")[kind] + ("_smooth" if smoothing else "")
        file.add(name, rows, np.float64)
        file.add(name + ".mean", value, np.float64)
        file.add(name + ".grad", leaf.grad, np.float64)


def make_optimizer(s, parameters):
    if s["optimizer"] == 0:
        return torch.optim.SGD(parameters, lr=s["lr"], momentum=s["momentum"], nesterov=bool(s["nesterov"]),
                               weight_decay=s["decay"])
    make = torch.optim.Adam if s["optimizer"] == 1 else torch.optim.AdamW
    return make(parameters, lr=s["lr"], weight_decay=s["decay"])


def train(s, state, dtype, x, answers, order):
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(N_INPUTS, 8))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("fc2", torch.nn.Linear(8, N_OUTPUTS))
    model.load_state_dict(state)
    model.to(dtype).train()
    optimizer = make_optimizer(s, model.parameters())
    scheduler = make_scheduler(optimizer, s)
    losses = []
    for step in range(N_STEPS):
        part = order[step % 2]
        t = answers[part] if s["loss"] == 0 else answers[part].to(dtype)
        optimizer.zero_grad()
        loss = loss_of(s, model(x[part].to(dtype)), t)
        loss.backward()
        if s["clip_value"] > 0:
            torch.nn.utils.clip_grad_value_(model.parameters(), s["clip_value"])
        if s["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), s["clip_norm"])
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    flat = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    return np.array(losses), flat.numpy()


def make_steps(file):
    x = draw(2 * BATCH, N_INPUTS)
    answers = {0: torch.randint(0, N_OUTPUTS, (2 * BATCH,)), 1: draw(2 * BATCH, N_OUTPUTS),
               2: (draw(2 * BATCH, N_OUTPUTS) > 0).double()}
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(N_INPUTS, 8))
    model.add_module("fc2", torch.nn.Linear(8, N_OUTPUTS))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    file.add("steps/x", x, np.float32)
    file.add("steps/labels", answers[0], np.int32)
    for kind in (1, 2):
        file.add(f"steps/targets{kind}", answers[kind], np.float32)
    file.add("steps/before", torch.cat([value.flatten() for value in state.values()]), np.float32)
    plain = torch.arange(2 * BATCH).reshape(2, BATCH)
    for name, changes in CASES.items():
        s = dict(DEFAULT, **changes)
        t = answers[int(s["loss"])]
        losses, after = train(s, state, torch.float64, x, t, plain)
        loss_error, error = 0.0, 0.0
        for _ in range(N_ORDERS):
            order = torch.stack([row[torch.randperm(BATCH)] for row in plain])
            rough = train(s, state, torch.float32, x, t, order)
            loss_error = max(loss_error, np.abs(rough[0] - losses).max())
            error = max(error, np.abs(rough[1] - after).max())
        file.add("steps/" + name, np.array([s[key] for key in SETTING]), np.float64)
        file.add("steps/" + name + ".loss", losses, np.float64)
        file.add("steps/" + name + ".loss.error", np.array(loss_error), np.float64)
        file.add("steps/" + name + ".after", after, np.float64)
        file.add("steps/" + name + ".error", np.array(error), np.float64)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(3)
    torch.set_num_threads(1)
    golden = File("data/train.golden")
    make_rates(golden)
    make_losses(golden)
    make_steps(golden)
    golden.write()
