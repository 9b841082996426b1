#!/usr/bin/env python3
"""Times PyTorch's predictions on the CPU, as bench_predict does for ours, and prints one line of JSON.

A call: the model in eval mode under torch.inference_mode(), float32, one batch that lies ready. `--format` is the layout of
images; compare_predict.py tries both. Memory is this process's own high-water mark above what is resident after PyTorch is
loaded and its libraries are warm. One process per measurement, pinned and with its allocator tuned by the caller.
"""
import argparse
import json
import time

import torch_step


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--max-seconds", type=float, default=1000.0, help="no further timed call after this")
    parser.add_argument("--format", choices=["nhwc", "nchw"], default="nhwc")
    return parser.parse_args()


def main():
    args = parse()
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    # Everything that is loaded on first use, before memory is looked at.
    with torch.inference_mode():
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))(torch.randn(2, 3, 8, 8))
    core = torch_step.blas_core()
    torch_step.make_model(torch, "squeezenet1_1", 2)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    base_kib = torch_step.status_kib("VmRSS")

    model = torch_step.make_model(torch, args.model, 0).eval()
    if args.model == "bert_small":
        x = torch.randint(0, torch_step.VOCABULARY, (args.batch, torch_step.SEQUENCE))
    else:
        x = torch.randn(args.batch, 1 if args.model == "lenet5" else 3, args.image, args.image)
        if args.format == "nhwc":
            model = model.to(memory_format=torch.channels_last)
            x = x.contiguous(memory_format=torch.channels_last)
    seconds, cpu_seconds, started = [], [], None
    with torch.inference_mode():
        for call in range(args.warmup + args.calls):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            if call == args.warmup:
                started = begin
            if len(seconds) >= 2 and begin - started > args.max_seconds:
                break
            model(x)
            if call >= args.warmup:
                seconds.append(time.perf_counter() - begin)
                cpu_seconds.append(time.process_time() - cpu_begin)
    growth_kib = torch_step.status_kib("VmHWM") - base_kib
    seconds.sort()
    cpu_seconds.sort()
    n = len(seconds)
    print(json.dumps({
        "peer": "pytorch " + torch.__version__, "blas_core": core, "model": args.model, "image": args.image,
        "batch": args.batch, "threads": args.threads, "format": args.format, "calls": n, "ms": 1e3 * seconds[n // 2],
        "best_ms": 1e3 * seconds[0], "cpu_ms": 1e3 * cpu_seconds[n // 2], "growth_bytes": growth_kib * 1024,
        "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
