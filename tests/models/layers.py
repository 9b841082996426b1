"""Single layers, each between a convolution and a dense head."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Around(nn.Module):
    """Convolution, the layer, the mean over pixels, a head; 3 x 17 x 17 in."""

    def __init__(self, layer, channels=8, after=None):
        super().__init__()
        self.conv, self.layer = nn.Conv2d(3, channels, 3, padding=1), layer
        self.fc = nn.Linear(after or channels, 5)

    def forward(self, x):
        return self.fc(self.layer(self.conv(x)).mean((2, 3)))


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class LogSoftmaxEnd(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x):
        return F.log_softmax(self.fc(torch.relu(self.conv(x)).mean((2, 3))), 1)


LOADED_FIRST = {
    'batch_norm': lambda: Around(nn.BatchNorm2d(8, eps=0.01, momentum=0.3)),
    'batch_norm_plain': lambda: Around(nn.BatchNorm2d(8, affine=False)),
    'group_norm': lambda: Around(nn.GroupNorm(4, 8)),
    'instance_norm': lambda: Around(nn.InstanceNorm2d(8, affine=True)),
    'average_pool_uncounted': lambda: Around(nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
    'max_pool_ceil': lambda: Around(nn.MaxPool2d(3, 2, ceil_mode=True)),
    'adaptive_average_pool': lambda: Around(nn.AdaptiveAvgPool2d(1)),
}

OTHERS = {
    'sigmoid': lambda: Around(nn.Sigmoid()),
    'silu': lambda: Around(nn.SiLU()),
    'hard_swish': lambda: Around(nn.Hardswish()),
    'hard_sigmoid': lambda: Around(nn.Hardsigmoid()),
    'leaky_relu': lambda: Around(nn.LeakyReLU(0.1)),
    'prelu': lambda: Around(nn.PReLU(8)),
    'elu': lambda: Around(nn.ELU()),
    'selu': lambda: Around(nn.SELU()),
    'celu': lambda: Around(nn.CELU(0.7)),
    'softplus': lambda: Around(nn.Softplus()),
    'mish': lambda: Around(nn.Mish()),
    'glu': lambda: Around(nn.GLU(1), after=4),
    'log_softmax': LogSoftmaxEnd,
    'depth_to_space': lambda: Around(nn.PixelShuffle(2), after=2),
    'zero_pad': lambda: Around(nn.ZeroPad2d((1, 2, 0, 1))),
    'reflection_pad': lambda: Around(nn.ReflectionPad2d(2)),
    'average_pool_ceil': lambda: Around(nn.AvgPool2d(3, 2, ceil_mode=True)),
    'lp_pool': lambda: Around(nn.Sequential(nn.ReLU(), nn.LPPool2d(2, 3, 2))),
    'local_response_norm': lambda: Around(nn.LocalResponseNorm(5)),
    'resize': lambda: Around(nn.Upsample(scale_factor=2, mode='nearest')),
}
LAYERS = {**LOADED_FIRST, **OTHERS}
