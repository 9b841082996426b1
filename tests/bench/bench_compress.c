/*
 * bench_compress.c - bytes an entry, error and speed of each packing, on a million normal values.
 *
 *   bench_compress [ENTRIES]
 *
 * A line each: bits an entry, squared error beside the squared norm, norm beside that of the
 * values (all with gain 1), and MB of float32 a second: measured, packed, unpacked.
 */
#include "../unit/proto/pack_cases.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct room {
    uint8_t *bytes;
    size_t n_bytes;
    size_t at;
    const float *values;
    size_t n_seen;
    double errors;
} room;

static void must(dunlin_status status, const dunlin_error *error)
{
    if (status != DUNLIN_OK) {
        fprintf(stderr, "bench_compress: %s\n", error->text);
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static dunlin_status put_room(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    room *to = ctx;
    (void)error;
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status take_room(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    room *from = ctx;
    (void)error;
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

static double run_packer(const dunlin__pack_options *options, const float *values, size_t n,
                         double *out_square)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_packer *packer = NULL;
    const double start = seconds();
    must(dunlin__tensor_packer_open(options, NULL, &packer, &error), &error);
    must(dunlin__tensor_packer_tensor(packer, 0, DUNLIN_V1_RULE_AVERAGE, n, 1.0f, &error), &error);
    for (size_t at = 0; at < n; at += 16384) {
        const size_t part = (n - at < 16384) ? n - at : 16384;
        must(dunlin__tensor_packer_values(packer, values + at, part, &error), &error);
    }
    must(dunlin__tensor_packer_tensor_end(packer, NULL, out_square, &error), &error);
    dunlin__tensor_packer_close(packer);
    return seconds() - start;
}

/* Twice: for the time, then for the error. */
static double run_unpacker(const dunlin__packing *packing, room *from, size_t n, bool is_timed)
{
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin__unpack_source source = {.ctx = from, .read_fn = take_room};
    dunlin__tensor_unpacker *unpacker = NULL;
    const float *values = NULL;
    size_t n_values = 1;
    size_t n_seen = 0;
    from->at = 0;
    const double start = seconds();
    must(dunlin__tensor_unpacker_open(packing, &source, NULL, &unpacker, &error), &error);
    must(dunlin__tensor_unpacker_tensor(unpacker, 0, DUNLIN_V1_RULE_AVERAGE, n, from->n_bytes,
                                        &error),
         &error);
    while (n_values > 0) {
        must(dunlin__tensor_unpacker_next(unpacker, &values, &n_values, &error), &error);
        for (size_t i = 0; !is_timed && i < n_values; i++) {
            const double off = (double)values[i] - (double)from->values[n_seen + i];
            from->errors += off * off;
        }
        n_seen += n_values;
    }
    dunlin__tensor_unpacker_close(unpacker);
    return seconds() - start;
}

static void choose_kept(dunlin__pack_options *options, const float *values, size_t n)
{
    dunlin__pack_chooser chooser;
    dunlin__pack_chooser_begin(&chooser, dunlin__packing_kept(&options->packing, n));
    for (unsigned pass = 0; pass < DUNLIN_PACK_CHOICE_PASSES; pass++) {
        dunlin__pack_chooser_add(&chooser, values, n);
        dunlin__pack_chooser_end_pass(&chooser, &options->choice);
    }
}

int main(int argc, char **argv)
{
    const size_t n = (argc > 1) ? strtoul(argv[1], NULL, 10) : 1000000;
    uint64_t state = 1;
    float *values = calloc(n + 1, sizeof(float));
    room to = {.bytes = calloc(n + 4096, 8), .values = values};
    double norm = 0.0;
    if (values == NULL || to.bytes == NULL || n == 0) {
        fprintf(stderr, "bench_compress: no room for %zu entries\n", n);
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)pack_normal(&state);
        norm += (double)values[i] * (double)values[i];
    }
    printf("%-20s %10s %10s %8s %8s %8s %8s\n", "packing", "bits", "error", "norm", "measure",
           "pack", "unpack");
    for (size_t k = 0; k < pack_n_kinds(); k++) {
        const double mb = 4e-6 * (double)n;
        double square = 0.0;
        dunlin__pack_options options = {.packing = pack_kind(k), .draws = {1}};
        choose_kept(&options, values, n);
        const double measured = run_packer(&options, values, n, &square);
        to.n_bytes = 0;
        to.errors = 0.0;
        options.sink = (dunlin__pack_sink){.ctx = &to, .write_fn = put_room};
        const double packed = run_packer(&options, values, n, &square);
        const double unpacked = run_unpacker(&options.packing, &to, n, true);
        (void)run_unpacker(&options.packing, &to, n, false);
        printf("%-20s %10.3f %10.3g %8.4f %8.0f %8.0f %8.0f\n", pack_kind_name(k),
               8.0 * (double)to.n_bytes / (double)n, to.errors / norm, sqrt(square / norm),
               mb / measured, mb / packed, mb / unpacked);
    }
    free(values);
    free(to.bytes);
    return 0;
}
