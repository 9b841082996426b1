/*
 * bench_examples.c - random examples, a pinned thread, processor time, a progress line.
 */
#define _GNU_SOURCE

#include "bench_examples.h"

#include <dunlin/pixels.h>

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPARE_ELEMENTS 4096 /* an example is a window of the buffer; this many begin elsewhere */
#define BERT_VOCABULARY 30522
#define GPT_VOCABULARY 5000 /* as torch_gpt.py draws them */
#define GPT_CHARACTERS 65

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15ULL;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return mixed ^ (mixed >> 31);
}

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const bench_examples *from = ctx;
    const size_t bytes = (size_t)from->n_elements * sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t mixed = (uint64_t)indices[i] * 0x9E3779B97F4A7C15ULL >> 32;
        const size_t first = (size_t)(mixed % SPARE_ELEMENTS);
        memcpy((unsigned char *)out_x + (size_t)i * bytes, from->buffer + first * sizeof(float),
               bytes);
        for (int64_t k = 0; k < from->n_labels; k++) {
            out_y[i * from->n_labels + k] =
                (int32_t)((mixed + 7 * (uint64_t)k) % (uint64_t)from->n_classes);
        }
    }
    return DUNLIN_OK;
}

int64_t bench_vocabulary(const char *network)
{
    return strncmp(network, "bert", 4) == 0   ? BERT_VOCABULARY
           : strcmp(network, "gpt_tiny") == 0 ? GPT_CHARACTERS
           : strncmp(network, "gpt", 3) == 0  ? GPT_VOCABULARY
                                              : 0;
}

bool bench_make_examples(const dunlin_model *model, int64_t n, int64_t vocabulary,
                         bench_examples *out, dunlin_source *out_source)
{
    const dunlin_shape shape = dunlin_model_input_shape(model);
    out->n_elements = 1;
    for (int32_t i = 0; i < shape.n_dims; i++) {
        out->n_elements *= shape.dims[i];
    }
    out->n_classes = (int32_t)dunlin_model_n_outputs(model);
    out->n_labels = dunlin_model_n_labels(model);
    const size_t n_room = (size_t)out->n_elements + SPARE_ELEMENTS;
    out->buffer_bytes = n_room * sizeof(float);
    out->buffer = malloc(out->buffer_bytes);
    if (out->buffer == NULL) {
        return false;
    }
    uint64_t state = 1;
    for (size_t i = 0; i < n_room; i++) {
        if (vocabulary > 0) {
            const int32_t token = (int32_t)(next_random(&state) % (uint64_t)vocabulary);
            memcpy(out->buffer + i * sizeof token, &token, sizeof token);
        } else {
            double sum = -2.0;
            for (int32_t k = 0; k < 4; k++) {
                sum += (double)(next_random(&state) >> 11) * 0x1p-53;
            }
            const float value = (float)(sum * sqrt(3.0));
            memcpy(out->buffer + i * sizeof value, &value, sizeof value);
        }
    }
    *out_source = (dunlin_source){.struct_size = sizeof(dunlin_source),
                                  .ctx = out,
                                  .read_fn = read_examples,
                                  .n_examples = n,
                                  .dtype = vocabulary > 0 ? DUNLIN_I32 : DUNLIN_F32,
                                  .n_labels = out->n_labels};
    return true;
}

void bench_free_examples(bench_examples *from)
{
    free(from->buffer);
    from->buffer = NULL;
}

bool bench_pin(int64_t core, int64_t n_threads)
{
    cpu_set_t allowed;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return false;
    }
    int64_t left = n_threads;
    for (int64_t k = 0; k < CPU_SETSIZE && left > 0; k++) {
        const size_t one = (size_t)((core + k) % CPU_SETSIZE);
        if (CPU_ISSET(one, &allowed)) {
            CPU_SET(one, &wanted);
            left--;
        }
    }
    return sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

double bench_cpu_ms(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

void bench_show(progress *line, int64_t done, int64_t total, double ms, double max_seconds)
{
    const double seconds = ms / 1e3;
    if (done > 0 && seconds > 0.0) {
        const double left_s = seconds * (double)(total - done) / (double)done;
        const double most_s = max_seconds > seconds ? max_seconds - seconds : 0.0;
        progress_tell(line, done, total, (double)done / seconds, left_s < most_s ? left_s : most_s,
                      NULL);
    }
}

int bench_compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}
