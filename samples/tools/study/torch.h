/*
 * torch.h - PyTorch as a child process, for figures beside ours in the same run.
 *
 * The script is inside the program and is given to a Python that has PyTorch; nothing of PyTorch is
 * in this process. Where there is none the figures are empty and `note` says why.
 */
#ifndef SAMPLES_STUDY_TORCH_H
#define SAMPLES_STUDY_TORCH_H

#include "study.h"

#define TORCH_NOTE_BYTES 200

/* The Python of --torch, and what it has. */
typedef struct torch_host {
    const char *python; /* NULL: --torch none */
    char version[48];   /* "": it has no PyTorch */
    char note[TORCH_NOTE_BYTES];
} torch_host;

/* The range of some repeats, in milliseconds of processor time. */
typedef struct torch_time {
    double ms, low_ms, high_ms;
    int64_t n;
} torch_time;

/* What is measured. */
typedef struct torch_case {
    const char *model;
    int32_t image, channels;
    int64_t classes, batch, n_threads, n_steps;
} torch_case;

typedef struct torch_figures {
    bool is_there; /* else only `note` is */
    torch_time forward, step;
    uint64_t forward_bytes, step_bytes; /* of the process, above what it held before the network */
    int64_t n_parameters;
    char layout[8];
    char note[TORCH_NOTE_BYTES];
} torch_figures;

/* Asks the Python of --torch, else "python3", else "/usr/bin/python3" for its PyTorch. */
torch_host torch_find(const study_flags *flags);

/* One measurement in a process of its own, at most some minutes. */
void torch_measure(const torch_host *host, const torch_case *what, torch_figures *out);

#endif
