/*
 * params.c - first values of parameters, block by block.
 *
 * Invariant: an element's value depends on the seed, the parameter and the element alone, so blocks
 * of any size in any order give the same weights. Random bits: SplitMix64's output function
 * (Steele, Lea, Flood 2014) as a counter-based generator; normal values: Box and Muller 1958.
 */
#include "params.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define TWO_PI 6.283185307179586476925

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t key, int64_t element)
{
    return mix(key + ((uint64_t)element + 1) * GOLDEN);
}

static void fill_uniform(uint64_t key, int64_t first, int64_t n, float bound, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        /* 24 bits, as many as a float holds: multiples of 2^-23 in [-1, 1). */
        int32_t steps = (int32_t)(draw(key, first + i) >> 40) - (1 << 23);
        out[i] = bound * ((float)steps * 0x1p-23f);
    }
}

static void fill_normal(uint64_t key, int64_t first, int64_t n, float deviation, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = draw(key, first + i);
        double radius = ((double)(bits >> 32) + 0.5) * 0x1p-32;
        double angle = (double)(bits & UINT32_MAX) * 0x1p-32;
        double value = sqrt(-2.0 * log(radius)) * cos(TWO_PI * angle);
        out[i] = (float)((double)deviation * value);
    }
}

void dunlin__param_reader_init(dunlin_param_reader *reader, const dunlin_net *net, uint64_t seed)
{
    *reader = (dunlin_param_reader){.net = net, .seed = seed, .path = NULL, .fd = -1};
}

void dunlin__param_reader_close(dunlin_param_reader *reader)
{
    if (reader->path != NULL) {
        (void)close(reader->fd);
    }
    reader->path = NULL;
    reader->fd = -1;
}

static dunlin_status open_weights(dunlin_param_reader *reader, const char *path,
                                  dunlin_error *error)
{
    if (reader->path != NULL && strcmp(reader->path, path) == 0) {
        return DUNLIN_OK;
    }
    dunlin__param_reader_close(reader);
    int fd = dunlin__sys_open(path, O_RDONLY, 0);
    if (fd < 0) {
        int reason = errno;
        return dunlin__fail(error, DUNLIN_IO, "net", reason,
                            "cannot open the weights in '%s' (system error %d)", path, reason);
    }
    reader->fd = fd;
    reader->path = path;
    return DUNLIN_OK;
}

/* From memory, which the importer has checked to hold every parameter. */
static dunlin_status copy_bytes(const dunlin_net_store *store, const dunlin_net_param *param,
                                uint64_t offset, size_t n_bytes, void *out, dunlin_error *error)
{
    if (offset > store->n_bytes || n_bytes > store->n_bytes - offset) {
        return dunlin__fail(error, DUNLIN_IO, "net", 0,
                            "the model's %" PRIu64 " bytes end inside parameter '%.80s'",
                            store->n_bytes, param->name);
    }
    memcpy(out, store->bytes + offset, n_bytes);
    return DUNLIN_OK;
}

static dunlin_status read_file(const dunlin_param_reader *reader, const dunlin_net_param *param,
                               uint64_t offset, size_t n_bytes, unsigned char *out,
                               dunlin_error *error)
{
    const bool is_named = param->weights_path != NULL;
    const int fd = is_named ? reader->fd : reader->net->store.fd;
    for (size_t done = 0; done < n_bytes;) {
        ssize_t got = pread(fd, out + done, n_bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            int reason = got < 0 ? errno : 0;
            return dunlin__fail(error, DUNLIN_IO, "net", reason,
                                "'%s' ends or fails at byte %" PRIu64
                                ", inside parameter '%.80s' (system error %d)",
                                is_named ? param->weights_path : "the model's descriptor",
                                offset + done, param->name, reason);
        }
        done += (size_t)got;
    }
    return DUNLIN_OK;
}

/* Little-endian floats into place. */
static dunlin_status read_floats(dunlin_param_reader *reader, const dunlin_net_param *param,
                                 int64_t element, int64_t n, float *out, dunlin_error *error)
{
    unsigned char *bytes = (unsigned char *)out;
    size_t n_bytes = (size_t)n * sizeof(float);
    uint64_t offset = param->file_offset + (uint64_t)element * sizeof(float);
    if (param->weights_path == NULL && reader->net->store.bytes != NULL) {
        DUNLIN_TRY(copy_bytes(&reader->net->store, param, offset, n_bytes, bytes, error));
    } else {
        DUNLIN_TRY(read_file(reader, param, offset, n_bytes, bytes, error));
    }
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *b = bytes + (size_t)i * sizeof(float);
        uint32_t bits =
            (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
    return DUNLIN_OK;
}

/* From wherever the parameter lies; the border where weights are checked to be finite. */
static dunlin_status read_store(dunlin_param_reader *reader, const dunlin_net_param *param,
                                int64_t element, int64_t n, float *out, dunlin_error *error)
{
    if (param->origin == DUNLIN_PARAM_VALUES) {
        memcpy(out, param->values + element, (size_t)n * sizeof *out);
    } else {
        DUNLIN_TRY(read_floats(reader, param, element, n, out, error));
    }
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(out[i])) {
            return dunlin__fail(error, DUNLIN_NUMERIC, "net", 0,
                                "parameter '%.100s' holds a value that is not finite at element "
                                "%" PRId64 " of its store",
                                param->name, element + i);
        }
    }
    return DUNLIN_OK;
}

/*
 * Elements of a (rows, columns) matrix whose file holds (columns, rows): a run of whole rows is, in
 * each of the file's lines, one stretch.
 */
static dunlin_status read_transposed(dunlin_param_reader *reader, const dunlin_net_param *param,
                                     int64_t first, int64_t n, float *out, dunlin_error *error)
{
    enum { LINE = 1024 };
    float line[LINE] = {0};
    int64_t rows = param->shape.dims[0];
    int64_t columns = param->shape.dims[1];
    for (int64_t row = first / columns; row * columns < first + n; row += LINE) {
        int64_t end_row = row + LINE < rows ? row + LINE : rows;
        if ((end_row - 1) * columns >= first + n) {
            end_row = (first + n - 1) / columns + 1;
        }
        for (int64_t column = 0; column < columns; column++) {
            DUNLIN_TRY(read_store(reader, param, column * rows + row, end_row - row, line, error));
            for (int64_t r = row; r < end_row; r++) {
                int64_t target = r * columns + column - first;
                if (target >= 0 && target < n) {
                    out[target] = line[r - row];
                }
            }
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__param_read(dunlin_param_reader *reader, uint32_t param_index, int64_t first,
                                 int64_t n, float *out, dunlin_error *error)
{
    if (param_index >= reader->net->n_params) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "net", 0, "parameter %" PRIu32 " of %zu",
                            param_index, reader->net->n_params);
    }
    const dunlin_net_param *param = &reader->net->params[param_index];
    if (first < 0 || n < 0 || first > param->n_elements || n > param->n_elements - first) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "net", 0,
                            "elements %" PRId64 " + %" PRId64 " of parameter '%.100s' of %" PRId64,
                            first, n, param->name, param->n_elements);
    }
    if (n == 0) {
        return DUNLIN_OK;
    }
    uint64_t key = mix(mix(reader->seed + GOLDEN) + param_index);
    switch (param->origin) {
    case DUNLIN_PARAM_UNIFORM:
        fill_uniform(key, first, n, param->bound, out);
        return DUNLIN_OK;
    case DUNLIN_PARAM_NORMAL:
        fill_normal(key, first, n, param->bound, out);
        return DUNLIN_OK;
    case DUNLIN_PARAM_CONSTANT:
        for (int64_t i = 0; i < n; i++) {
            out[i] = param->bound;
        }
        return DUNLIN_OK;
    case DUNLIN_PARAM_VALUES:
    case DUNLIN_PARAM_FILE:
        break;
    }
    const dunlin_net_store *store = &reader->net->store;
    if (param->origin == DUNLIN_PARAM_FILE && param->weights_path == NULL && store->bytes == NULL &&
        !store->has_fd) {
        return dunlin__fail(error, DUNLIN_STATE, "net", 0,
                            "parameter '%.100s' comes from a file that is not there to read",
                            param->name);
    }
    if (param->weights_path != NULL) {
        DUNLIN_TRY(open_weights(reader, param->weights_path, error));
    }
    if (param->is_transposed_in_file) {
        return read_transposed(reader, param, first, n, out, error);
    }
    return read_store(reader, param, first, n, out, error);
}
