#!/usr/bin/env python3
"""Makes data/pipeline.golden with torchvision: resize (bilinear, antialias=True), crop with padding, centre crop, flip.

Run as `python3 make_pipeline.py` in this folder; needs python3-torch and python3-torchvision. The format of the file is
described in make_golden.py. Names: CASE/PART. PART is x (the image, float32), size (height and width after resizing),
window (top, left, height, width, flipped: of the window in the resized image; top -1000 for the centre) and y: float64,
what comes out before any rounding; bytes: what torchvision makes of the same image as uint8.
"""
import numpy as np
import torch
import torchvision.transforms.functional as F

from make_golden import File

CENTRE = -1000

# name, channels, (h, w), resized (h, w), window (top, left, h, w), flipped
CASES = [
    ("same", 1, (6, 5), (6, 5), (0, 0, 6, 5), 0),
    ("larger", 3, (5, 7), (11, 9), (0, 0, 11, 9), 0),
    ("smaller", 2, (16, 12), (7, 5), (0, 0, 7, 5), 0),
    ("smaller_much", 1, (29, 31), (3, 2), (0, 0, 3, 2), 0),
    ("mixed", 1, (6, 20), (13, 7), (0, 0, 13, 7), 0),
    ("width_only", 1, (6, 9), (6, 4), (0, 0, 6, 4), 0),
    ("height_only", 1, (9, 6), (17, 6), (0, 0, 17, 6), 0),
    ("flip", 2, (4, 5), (4, 5), (0, 0, 4, 5), 1),
    ("crop", 2, (8, 9), (8, 9), (2, 3, 4, 5), 0),
    ("padded", 2, (8, 8), (8, 8), (-3, 2, 8, 8), 0),
    ("padded_flip", 1, (8, 8), (8, 8), (4, -4, 8, 8), 1),
    ("all", 3, (10, 12), (14, 9), (-2, 3, 9, 8), 1),
    ("all_smaller", 3, (19, 17), (8, 7), (3, -1, 6, 6), 1),
    ("centre", 1, (9, 10), (9, 10), (CENTRE, 0, 4, 5), 0),
    ("centre_odd", 1, (9, 8), (9, 8), (CENTRE, 0, 6, 3), 0),
    ("centre_resized", 2, (11, 13), (8, 9), (CENTRE, 0, 7, 6), 0),
    ("centre_beyond", 1, (5, 6), (5, 6), (CENTRE, 0, 8, 9), 0),
    ("centre_mixed", 1, (5, 9), (5, 9), (CENTRE, 0, 8, 4), 0),
]


def apply(image, size, window, flipped):
    top, left, height, width = window
    if list(size) != list(image.shape[1:]):
        image = F.resize(image, list(size), antialias=True)
    if top == CENTRE:
        image = F.center_crop(image, [height, width])
    else:
        border = 64
        image = F.crop(F.pad(image, border), top + border, left + border, height, width)
    return F.hflip(image) if flipped else image


def main():
    torch.manual_seed(7)
    file = File("data/pipeline.golden")
    for name, channels, shape, size, window, flipped in CASES:
        x = torch.randint(0, 256, (channels, *shape), dtype=torch.uint8)
        file.add(name + "/x", x, np.float32)
        file.add(name + "/size", torch.tensor(size), np.int32)
        file.add(name + "/window", torch.tensor([*window, flipped]), np.int32)
        file.add(name + "/y", apply(x.double(), size, window, flipped), np.float64)
        file.add(name + "/bytes", apply(x, size, window, flipped), np.int32)
    file.write()


if __name__ == "__main__":
    main()
