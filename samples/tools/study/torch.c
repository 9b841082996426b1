/*
 * torch.c - runs the script of torch_step.py in a Python, and reads the one line it prints.
 *
 * Invariant: whatever the child does, it ends, and what it printed is a note or a figure; a child
 * is stopped when the study is interrupted or after MOST_S.
 */
#include "torch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_S 900
#define LINE_BYTES 4096
#define MOST_WORDS 24
#define FIND "import torch, torchvision; print(torch.__version__)"

extern const unsigned char study_torch_step[];

/* The allocator keeps its memory and uses large pages: PyTorch's strongest form. */
static void set_environment(int64_t n_threads)
{
    char threads[24];
    (void)snprintf(threads, sizeof threads, "%" PRId64, n_threads);
    (void)setenv("OPENBLAS_NUM_THREADS", threads, 1);
    (void)setenv("OMP_NUM_THREADS", threads, 1);
    (void)setenv("MKL_NUM_THREADS", threads, 1);
    (void)setenv("GLIBC_TUNABLES",
                 "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
                 "glibc.malloc.trim_threshold=68719476736",
                 1);
}

/* The child: what it says on stderr is nobody's, since the script prints what is wrong. */
static void become(const char *const *words, int out, int64_t n_threads)
{
    const char *argv[MOST_WORDS] = {NULL};
    for (size_t i = 0; i < MOST_WORDS - 1 && words[i] != NULL; i++) {
        argv[i] = words[i];
    }
    const int nowhere = open("/dev/null", O_RDWR);
    (void)dup2(nowhere, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
    set_environment(n_threads);
    (void)execvp(argv[0], (char *const *)(void *)argv);
    _exit(127);
}

/* Reads to the end, or until it is time to stop; false: the child is to be stopped. */
static bool read_all(int in, char out[LINE_BYTES])
{
    const double end_ms = clock_ms() + 1e3 * MOST_S;
    size_t length = 0;
    while (clock_ms() < end_ms && !study_is_interrupted()) {
        struct pollfd wait = {.fd = in, .events = POLLIN};
        const int ready = poll(&wait, 1, 200);
        if (ready > 0) {
            char more[512];
            const ssize_t n = read(in, more, sizeof more);
            if (n == 0) {
                return true;
            }
            for (ssize_t i = 0; i < n && length < LINE_BYTES - 1; i++) {
                out[length++] = more[i];
            }
        } else if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
    return false;
}

/* Runs `words` (ends with NULL) and hands out what it prints, without the line's end; false with a
 * note if it did not end well. */
static bool run_child(const char *const *words, int64_t n_threads, char out[LINE_BYTES],
                      char note[TORCH_NOTE_BYTES])
{
    int ends[2];
    int status = 0;
    memset(out, 0, LINE_BYTES);
    if (pipe(ends) != 0) {
        (void)snprintf(note, TORCH_NOTE_BYTES, "no pipe to %s: %s", words[0], strerror(errno));
        return false;
    }
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        become(words, ends[1], n_threads);
    }
    (void)close(ends[1]);
    const bool has_ended = child > 0 && read_all(ends[0], out);
    (void)close(ends[0]);
    if (child > 0 && !has_ended) {
        (void)kill(child, SIGKILL);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    out[strcspn(out, "\n")] = '\0';
    if (child > 0 && has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (child > 0 && has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        (void)snprintf(note, TORCH_NOTE_BYTES, "%s cannot be started", words[0]);
    } else if (child > 0 && WIFSIGNALED(status)) {
        (void)snprintf(note, TORCH_NOTE_BYTES, "%s was ended by signal %d", words[0],
                       WTERMSIG(status));
    } else {
        (void)snprintf(note, TORCH_NOTE_BYTES, "%s has no PyTorch with torchvision", words[0]);
    }
    return false;
}

static bool ask(const char *python, torch_host *out)
{
    const char *const words[] = {python, "-c", FIND, NULL};
    char line[LINE_BYTES];
    out->python = python;
    if (run_child(words, 1, line, out->note)) {
        (void)snprintf(out->version, sizeof out->version, "%.*s", (int)sizeof out->version - 1,
                       line);
    }
    return out->version[0] != '\0';
}

torch_host torch_find(const study_flags *flags)
{
    torch_host host = {.python = NULL};
    if (flags->torch != NULL && strcmp(flags->torch, "none") == 0) {
        (void)snprintf(host.note, sizeof host.note, "--torch none");
    } else if (flags->torch != NULL) {
        (void)ask(flags->torch, &host);
    } else if (!ask("python3", &host)) {
        (void)ask("/usr/bin/python3", &host);
    }
    return host;
}

static torch_time time_of(const json_t *all, const char *name)
{
    static const char *const ends[] = {"_ms", "_low_ms", "_high_ms", "_n"};
    double values[4];
    for (size_t i = 0; i < 4; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s%s", name, ends[i]);
        const json_t *value = json_object_get(all, key);
        values[i] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
    return (torch_time){.ms = values[0],
                        .low_ms = values[1],
                        .high_ms = values[2],
                        .n = isfinite(values[3]) ? (int64_t)values[3] : 0};
}

static void take_line(const char *line, torch_figures *out)
{
    json_t *all = json_loads(line, 0, NULL);
    const char *problem = json_string_value(json_object_get(all, "problem"));
    out->forward = time_of(all, "forward");
    out->step = time_of(all, "step");
    out->is_there = problem == NULL && out->step.n > 0 && out->forward.n > 0;
    if (out->is_there) {
        const char *layout = json_string_value(json_object_get(all, "layout"));
        out->forward_bytes = (uint64_t)json_integer_value(json_object_get(all, "forward_bytes"));
        out->step_bytes = (uint64_t)json_integer_value(json_object_get(all, "step_bytes"));
        out->n_parameters = json_integer_value(json_object_get(all, "parameters"));
        (void)snprintf(out->layout, sizeof out->layout, "%s", layout == NULL ? "" : layout);
    } else {
        (void)snprintf(out->note, sizeof out->note, "%.*s", (int)sizeof out->note - 1,
                       problem != NULL ? problem : "PyTorch printed no figures");
    }
    json_decref(all);
}

void torch_measure(const torch_host *host, const torch_case *what, torch_figures *out)
{
    char numbers[6][24];
    char line[LINE_BYTES];
    const int64_t values[6] = {what->image, what->channels,  what->classes,
                               what->batch, what->n_threads, what->n_steps};
    *out = (torch_figures){.is_there = false};
    if (host->version[0] == '\0') {
        (void)snprintf(out->note, sizeof out->note, "%s", host->note);
        return;
    }
    for (size_t i = 0; i < 6; i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i]);
    }
    const char *const words[MOST_WORDS] = {
        host->python, "-c",         (const char *)study_torch_step,
        "--model",    what->model,  "--image",
        numbers[0],   "--channels", numbers[1],
        "--classes",  numbers[2],   "--batch",
        numbers[3],   "--threads",  numbers[4],
        "--steps",    numbers[5],   NULL};
    if (run_child(words, what->n_threads, line, out->note)) {
        take_line(line, out);
    }
}
