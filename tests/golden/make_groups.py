#!/usr/bin/env python3
"""Makes data/groups.golden with PyTorch in float64: a small network with layer norm after ten steps, with param_groups of
their own rates and weight decays, with parameters that are not trained, and with labels that are ignored. The format and the
`.error` are those of make_golden.py.

Run as `python3 make_groups.py` in this folder. A setting is an array of numbers, in the order of SETTING.
"""
import numpy as np
import torch
import torch.nn.functional as F

from make_golden import N_ORDERS, File, draw

N_STEPS, BATCH, N_INPUTS, N_HIDDEN, N_OUTPUTS = 10, 6, 5, 8, 7
IGNORED = -100

# optimizer 0 SGD with momentum 0.9, 2 AdamW; trained 0 all, 1 the head, 2 biases and norms, 3 the prefix fc1;
# head_lr, head_decay: factors of the last layer; rest_lr of all biases that are not the head's; norm_decay 0: biases and norms
# without; ignored 1: some labels are IGNORED, 2: some weights are 0, 3: both with weights and smoothing
SETTING = ("optimizer", "lr", "decay", "trained", "head_lr", "head_decay", "bias_lr", "norm_decay", "ignored")
DEFAULT = dict(zip(SETTING, (0, 0.1, 0.05, 0, 1, 1, 1, 1, 0)))

CASES = {
    "plain": {},
    "sgd_groups": {"head_lr": 10, "head_decay": 0.5, "bias_lr": 2},
    "sgd_no_norms": {"norm_decay": 0},
    "sgd_zero_rate": {"head_lr": 0},
    "adamw_groups": {"optimizer": 2, "lr": 0.01, "decay": 0.5, "head_lr": 4, "head_decay": 0, "bias_lr": 0.25},
    "adamw_no_norms": {"optimizer": 2, "lr": 0.02, "decay": 0.5, "norm_decay": 0, "head_lr": 2},
    "sgd_head": {"trained": 1},
    "sgd_biases": {"trained": 2},
    "adamw_biases": {"trained": 2, "optimizer": 2, "lr": 0.02},
    "sgd_prefix": {"trained": 3},
    "sgd_ignored": {"ignored": 1},
    "adamw_ignored": {"ignored": 1, "optimizer": 2, "lr": 0.02},
    "sgd_weights": {"ignored": 2},
    "sgd_both": {"ignored": 3},
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(N_INPUTS, N_HIDDEN)
        self.norm = torch.nn.LayerNorm(N_HIDDEN)
        self.fc2 = torch.nn.Linear(N_HIDDEN, N_OUTPUTS)

    def forward(self, x):
        return self.fc2(torch.relu(self.norm(self.fc1(x))))


def is_bias_or_norm(name):
    return name.startswith("norm.") or name.endswith(".bias")


def is_trained(s, name):
    return (True, name.startswith("fc2."), is_bias_or_norm(name), name.startswith("fc1"))[int(s["trained"])]


def group_of(s, name, parameter):
    lr, decay = 1.0, 1.0
    if name.startswith("fc2."):
        lr, decay = s["head_lr"], s["head_decay"]
    elif name.endswith(".bias") and not name.startswith("norm."):
        lr = s["bias_lr"]
    if s["norm_decay"] == 0 and is_bias_or_norm(name):
        decay = 0.0
    return {"params": [parameter], "lr": s["lr"] * lr, "weight_decay": s["decay"] * decay}


def loss_of(s, y, labels, weights):
    ignored = int(s["ignored"])
    if ignored < 2:
        return F.cross_entropy(y, labels, ignore_index=IGNORED)
    counted = (weights > 0) & (labels != IGNORED)
    rows = F.cross_entropy(y[counted], labels[counted], label_smoothing=0.1 if ignored == 3 else 0.0, reduction="none")
    return (rows * weights[counted]).sum() / weights[counted].sum()


def train(s, state, dtype, x, labels, weights, order):
    model = Net()
    model.load_state_dict(state)
    model.to(dtype).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(s, name))
    groups = [group_of(s, name, p) for name, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(groups, lr=s["lr"], momentum=0.9) if s["optimizer"] == 0 else torch.optim.AdamW(groups)
    losses = []
    for step in range(N_STEPS):
        part = order[step % 2]
        optimizer.zero_grad()
        loss = loss_of(s, model(x[part].to(dtype)), labels[part], weights[part].to(dtype))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    flat = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    return np.array(losses), flat.numpy()


def answers_of(s, labels, weights):
    """The labels and weights of a case; what does not count has a label that is none."""
    ignored = int(s["ignored"])
    labels, weights = labels.clone(), weights.clone() if ignored >= 2 else torch.ones_like(weights)
    if ignored in (1, 3):
        labels[[0, 4, 7, 8, 9]] = IGNORED
    if ignored >= 2:
        weights[[1, 4, 10]] = 0.0
        labels[[1, 10]] = IGNORED if ignored == 3 else 1000
    return labels, weights


def main():
    file = File("data/groups.golden")
    x = draw(2 * BATCH, N_INPUTS)
    labels = torch.randint(0, N_OUTPUTS, (2 * BATCH,))
    weights = draw(2 * BATCH, low=0.25, high=2)
    state = {key: value.clone() for key, value in Net().state_dict().items()}
    state["norm.weight"] = draw(N_HIDDEN, low=0.5, high=1.5).float()
    state["norm.bias"] = draw(N_HIDDEN).float()
    file.add("steps/x", x, np.float32)
    file.add("steps/before", torch.cat([value.flatten() for value in state.values()]), np.float32)
    plain = torch.arange(2 * BATCH).reshape(2, BATCH)
    for name, changes in CASES.items():
        s = dict(DEFAULT, **changes)
        t, w = answers_of(s, labels, weights)
        losses, after = train(s, state, torch.float64, x, t, w, plain)
        loss_error, error = 0.0, 0.0
        for _ in range(N_ORDERS):
            order = torch.stack([row[torch.randperm(BATCH)] for row in plain])
            rough = train(s, state, torch.float32, x, t, w, order)
            loss_error = max(loss_error, np.abs(rough[0] - losses).max())
            error = max(error, np.abs(rough[1] - after).max())
        file.add("steps/" + name, np.array([s[key] for key in SETTING]), np.float64)
        file.add("steps/" + name + ".labels", t, np.int32)
        file.add("steps/" + name + ".weights", w, np.float32)
        file.add("steps/" + name + ".loss", losses, np.float64)
        file.add("steps/" + name + ".loss.error", np.array(loss_error), np.float64)
        file.add("steps/" + name + ".after", after, np.float64)
        file.add("steps/" + name + ".error", np.array(error), np.float64)
    file.write()


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    main()
