/*
 * checkpoint.c - a trainer's state as a file.
 *
 * All numbers little-endian: "DUNLINCK", version, number of parameters, number of properties, bytes
 * of the file, fingerprints of the model and of the optimiser's state, step, seed; the properties;
 * for each parameter, in ONNX's order, its weights, its momentum (or Adam's two means) and its
 * slots; CRC-32 of all that. Version 1 knew SGD alone, and is otherwise the same.
 * Invariant: a file is read to its end and found right before anything of the trainer changes; what
 * could not be read back, since a value is not finite, does not become a file.
 */
#include "kernels/simd/finite.h"
#include "properties.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/run/layout.h"
#include "weights.h"

#include <mem/outfile.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MAGIC "DUNLINCK"
#define FORMAT_VERSION 2
#define HEAD_BYTES 60
#define CRC_BYTES 4
#define BLOCK_FLOATS 1024

typedef struct checkpoint_head {
    uint32_t n_params;
    uint32_t n_properties;
    uint64_t file_bytes;
    uint64_t model;     /* names, shapes, roles */
    uint64_t optimizer; /* which one, and which parameters have its state and slots */
    uint64_t step;
    uint64_t seed;
} checkpoint_head;

static void put_number(unsigned char *out, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        out[i] = (unsigned char)(number >> (8 * i));
    }
}

static uint64_t get_number(const unsigned char *bytes, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    return number;
}

/* FNV-1a, 64 bits: tells models apart, protects against nothing. */
static void add_to_print(uint64_t *print, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) {
        *print = (*print ^ at[i]) * UINT64_C(0x100000001b3);
    }
}

static void add_number_to_print(uint64_t *print, uint64_t number)
{
    unsigned char bytes[8];
    put_number(bytes, number, sizeof bytes);
    add_to_print(print, bytes, sizeof bytes);
}

/* The tensors of one parameter that a checkpoint holds. */
static size_t state_tensors(const dunlin_trainer *trainer, size_t param, uint32_t *out_tensors)
{
    const dunlin_step_param *step_param = &trainer->train.step->params[param];
    size_t n = 0;
    out_tensors[n++] = step_param->tensor;
    if (step_param->momentum != DUNLIN_STEP_NONE) {
        out_tensors[n++] = step_param->momentum;
    }
    if (step_param->square != DUNLIN_STEP_NONE) {
        out_tensors[n++] = step_param->square;
    }
    for (size_t s = 0; s < DUNLIN_STEP_MAX_SLOTS; s++) {
        if (step_param->slots[s] != DUNLIN_STEP_NONE) {
            out_tensors[n++] = step_param->slots[s];
        }
    }
    return n;
}

#define MAX_STATE_TENSORS (3 + DUNLIN_STEP_MAX_SLOTS)

/* Everything of the head but the number and the bytes of the properties. */
static checkpoint_head expected_head(const dunlin_trainer *trainer)
{
    checkpoint_head head = {.n_params = (uint32_t)trainer->net.n_params,
                            .model = UINT64_C(0xcbf29ce484222325),
                            .optimizer = UINT64_C(0xcbf29ce484222325),
                            .step = (uint64_t)trainer->step,
                            .seed = trainer->seed,
                            .file_bytes = HEAD_BYTES + CRC_BYTES};
    if (trainer->options.optimizer != DUNLIN_OPTIMIZER_SGD) {
        add_number_to_print(&head.optimizer, (uint64_t)trainer->options.optimizer);
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_net_param *param = &trainer->net.params[i];
        add_to_print(&head.model, param->name, strlen(param->name) + 1);
        add_number_to_print(&head.model, (uint64_t)param->role);
        add_number_to_print(&head.model, (uint64_t)param->shape.n_dims);
        for (int32_t d = 0; d < param->shape.n_dims; d++) {
            add_number_to_print(&head.model, (uint64_t)param->shape.dims[d]);
        }
        uint32_t tensors[MAX_STATE_TENSORS];
        const size_t n_tensors = state_tensors(trainer, i, tensors);
        const bool has_momentum = trainer->train.step->params[i].momentum != DUNLIN_STEP_NONE;
        add_number_to_print(&head.optimizer, n_tensors * 2 + (has_momentum ? 1 : 0));
        head.file_bytes += n_tensors * (uint64_t)param->n_elements * sizeof(float);
    }
    return head;
}

/* --- writing --- */

typedef struct checkpoint_writer {
    dunlin_outfile file;
    uLong crc;
    dunlin_error *error;
} checkpoint_writer;

static dunlin_status put_bytes(checkpoint_writer *writer, const void *bytes, size_t n)
{
    writer->crc = crc32(writer->crc, bytes, (uInt)n);
    return dunlin__outfile_write(&writer->file, bytes, n, writer->error);
}

static dunlin_status put_head(checkpoint_writer *writer, const checkpoint_head *head)
{
    unsigned char bytes[HEAD_BYTES] = MAGIC;
    put_number(bytes + 8, FORMAT_VERSION, 4);
    put_number(bytes + 12, head->n_params, 4);
    put_number(bytes + 16, head->n_properties, 4);
    put_number(bytes + 20, head->file_bytes, 8);
    put_number(bytes + 28, head->model, 8);
    put_number(bytes + 36, head->optimizer, 8);
    put_number(bytes + 44, head->step, 8);
    put_number(bytes + 52, head->seed, 8);
    return put_bytes(writer, bytes, sizeof bytes);
}

static dunlin_status put_properties(checkpoint_writer *writer, const dunlin_properties *properties)
{
    for (size_t i = 0; i < properties->n; i++) {
        const dunlin_property *property = &properties->items[i];
        unsigned char lengths[4];
        put_number(lengths, strlen(property->name), 2);
        put_number(lengths + 2, strlen(property->text), 2);
        DUNLIN_TRY(put_bytes(writer, lengths, sizeof lengths));
        DUNLIN_TRY(put_bytes(writer, property->name, strlen(property->name)));
        DUNLIN_TRY(put_bytes(writer, property->text, strlen(property->text)));
    }
    return DUNLIN_OK;
}

static dunlin_status put_tensor(checkpoint_writer *writer, const dunlin_net_param *param,
                                const float *floats)
{
    float values[BLOCK_FLOATS];
    unsigned char bytes[BLOCK_FLOATS * sizeof(float)];
    for (int64_t first = 0; first < param->n_elements; first += BLOCK_FLOATS) {
        const int64_t left = param->n_elements - first;
        const int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        dunlin__layout_load(param, floats, first, n, values);
        const int64_t n_finite = finite_count(values, n);
        if (n_finite < n) {
            return dunlin__fail(writer->error, DUNLIN_NUMERIC, "checkpoint", 0,
                                "%.100s is not written: element %" PRId64
                                " of \"%.80s\" or of its state is not finite",
                                writer->file.path, first + n_finite, param->name);
        }
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = 0;
            memcpy(&bits, &values[i], sizeof bits);
            put_number(bytes + (size_t)i * sizeof bits, bits, sizeof bits);
        }
        DUNLIN_TRY(put_bytes(writer, bytes, (size_t)n * sizeof(float)));
    }
    return DUNLIN_OK;
}

static dunlin_status put_all(checkpoint_writer *writer, const dunlin_trainer *trainer)
{
    checkpoint_head head = expected_head(trainer);
    head.n_properties = (uint32_t)trainer->properties.n;
    for (size_t i = 0; i < trainer->properties.n; i++) {
        /* Two lengths of two bytes, and the texts without their zeros. */
        head.file_bytes += 4 + trainer->properties.items[i].bytes - 2;
    }
    DUNLIN_TRY(put_head(writer, &head));
    DUNLIN_TRY(put_properties(writer, &trainer->properties));
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        uint32_t tensors[MAX_STATE_TENSORS];
        const size_t n = state_tensors(trainer, i, tensors);
        for (size_t t = 0; t < n; t++) {
            DUNLIN_TRY(put_tensor(writer, &trainer->net.params[i],
                                  dunlin__trainer_floats(trainer, tensors[t])));
        }
    }
    unsigned char crc[CRC_BYTES];
    put_number(crc, writer->crc, sizeof crc);
    return dunlin__outfile_write(&writer->file, crc, sizeof crc, writer->error);
}

static dunlin_status save_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (path == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no path for the checkpoint");
    }
    checkpoint_writer writer = {.crc = crc32(0, Z_NULL, 0), .error = trainer->error};
    DUNLIN_TRY(dunlin__outfile_open(&writer.file, path, 0666, trainer->error));
    const dunlin_status status = put_all(&writer, trainer);
    return dunlin__outfile_close(&writer.file, status, trainer->error);
}

dunlin_status dunlin_trainer_save_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, save_checkpoint(trainer, path));
}

/* --- reading --- */

typedef struct checkpoint_reader {
    const dunlin_trainer *trainer;
    const char *path;
    int fd;
    uint64_t left_bytes; /* before the checksum */
    uLong crc;
} checkpoint_reader;

static dunlin_status fail_damaged(const checkpoint_reader *reader, const char *what)
{
    return dunlin__fail(reader->trainer->error, DUNLIN_DIGEST, "checkpoint", 0, "%.160s: %s",
                        reader->path, what);
}

static dunlin_status read_exactly(const checkpoint_reader *reader, void *out, size_t n)
{
    unsigned char *at = out;
    while (n > 0) {
        const ssize_t got = read(reader->fd, at, n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            const int reason = errno;
            return dunlin__fail(reader->trainer->error, DUNLIN_IO, "checkpoint", reason,
                                "%.160s: reading fails (system error %d)", reader->path, reason);
        }
        if (got == 0) {
            return fail_damaged(reader, "the file ends too early");
        }
        at += got;
        n -= (size_t)got;
    }
    return DUNLIN_OK;
}

static dunlin_status get_bytes(checkpoint_reader *reader, void *out, size_t n)
{
    if (n > reader->left_bytes) {
        return fail_damaged(reader, "the file is shorter than its contents");
    }
    DUNLIN_TRY(read_exactly(reader, out, n));
    reader->left_bytes -= n;
    reader->crc = crc32(reader->crc, out, (uInt)n);
    return DUNLIN_OK;
}

static dunlin_status get_head(checkpoint_reader *reader, checkpoint_head *out_head)
{
    unsigned char bytes[HEAD_BYTES];
    struct stat info;
    if (fstat(reader->fd, &info) != 0 || info.st_size < HEAD_BYTES + CRC_BYTES) {
        return fail_damaged(reader, "too short for a checkpoint");
    }
    reader->left_bytes = (uint64_t)info.st_size - CRC_BYTES;
    DUNLIN_TRY(get_bytes(reader, bytes, sizeof bytes));
    if (memcmp(bytes, MAGIC, 8) != 0) {
        return fail_damaged(reader, "not a checkpoint");
    }
    const uint64_t version = get_number(bytes + 8, 4);
    if (version < 1 || version > FORMAT_VERSION) {
        return dunlin__fail(reader->trainer->error, DUNLIN_VERSION, "checkpoint", 0,
                            "%.120s: format version %" PRIu64 "; this library reads 1 to %d",
                            reader->path, version, FORMAT_VERSION);
    }
    *out_head = (checkpoint_head){.n_params = (uint32_t)get_number(bytes + 12, 4),
                                  .n_properties = (uint32_t)get_number(bytes + 16, 4),
                                  .file_bytes = get_number(bytes + 20, 8),
                                  .model = get_number(bytes + 28, 8),
                                  .optimizer = get_number(bytes + 36, 8),
                                  .step = get_number(bytes + 44, 8),
                                  .seed = get_number(bytes + 52, 8)};
    if (out_head->file_bytes != (uint64_t)info.st_size) {
        return fail_damaged(reader, "the file's size is not the one it names");
    }
    return DUNLIN_OK;
}

static dunlin_status check_head(const checkpoint_reader *reader, const checkpoint_head *head)
{
    const checkpoint_head expected = expected_head(reader->trainer);
    if (head->n_params != expected.n_params || head->model != expected.model) {
        return dunlin__fail(reader->trainer->error, DUNLIN_MISMATCH, "checkpoint", 0,
                            "%.120s: belongs to another model (%" PRIu32
                            " parameters; the trainer has %" PRIu32 ")",
                            reader->path, head->n_params, expected.n_params);
    }
    if (head->optimizer != expected.optimizer) {
        return dunlin__fail(
            reader->trainer->error, DUNLIN_MISMATCH, "checkpoint", 0,
            "%.120s: optimiser, momentum, slots or frozen parameters are not as in the trainer",
            reader->path);
    }
    if (head->n_properties > DUNLIN_TRAINER_MAX_PROPERTIES || head->step > INT64_MAX) {
        return fail_damaged(reader, "a number of its head is out of range");
    }
    return DUNLIN_OK;
}

/* `properties` NULL: read past them. */
static dunlin_status get_properties(checkpoint_reader *reader, uint32_t n,
                                    dunlin_properties *properties)
{
    for (uint32_t i = 0; i < n; i++) {
        unsigned char lengths[4];
        char name[DUNLIN_TRAINER_MAX_PROPERTY_NAME + 1] = "";
        char text[DUNLIN_TRAINER_MAX_PROPERTY_TEXT + 1] = "";
        DUNLIN_TRY(get_bytes(reader, lengths, sizeof lengths));
        const size_t name_bytes = (size_t)get_number(lengths, 2);
        const size_t text_bytes = (size_t)get_number(lengths + 2, 2);
        if (name_bytes == 0 || name_bytes > DUNLIN_TRAINER_MAX_PROPERTY_NAME ||
            text_bytes > DUNLIN_TRAINER_MAX_PROPERTY_TEXT) {
            return fail_damaged(reader, "a property's length is out of range");
        }
        DUNLIN_TRY(get_bytes(reader, name, name_bytes));
        DUNLIN_TRY(get_bytes(reader, text, text_bytes));
        if (properties != NULL) {
            DUNLIN_TRY(dunlin__properties_set(reader->trainer, properties, name, text));
        }
    }
    return DUNLIN_OK;
}

/* `floats` NULL: only checks. */
static dunlin_status get_tensor(checkpoint_reader *reader, const dunlin_net_param *param,
                                float *floats)
{
    float values[BLOCK_FLOATS];
    unsigned char bytes[BLOCK_FLOATS * sizeof(float)] = {0};
    for (int64_t first = 0; first < param->n_elements; first += BLOCK_FLOATS) {
        const int64_t left = param->n_elements - first;
        const int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        DUNLIN_TRY(get_bytes(reader, bytes, (size_t)n * sizeof(float)));
        for (int64_t i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)get_number(bytes + (size_t)i * sizeof bits, 4);
            memcpy(&values[i], &bits, sizeof bits);
            if (!isfinite(values[i])) {
                return dunlin__fail(reader->trainer->error, DUNLIN_NUMERIC, "checkpoint", 0,
                                    "%.100s: element %" PRId64 " of \"%.80s\" is not finite",
                                    reader->path, first + i, param->name);
            }
        }
        if (floats != NULL) {
            dunlin__layout_store(param, floats, first, n, values);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status get_tensors(checkpoint_reader *reader, bool is_applied)
{
    const dunlin_trainer *trainer = reader->trainer;
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        uint32_t tensors[MAX_STATE_TENSORS];
        const size_t n = state_tensors(trainer, i, tensors);
        for (size_t t = 0; t < n; t++) {
            DUNLIN_TRY(get_tensor(reader, &trainer->net.params[i],
                                  is_applied ? dunlin__trainer_floats(trainer, tensors[t]) : NULL));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status get_checksum(checkpoint_reader *reader)
{
    unsigned char bytes[CRC_BYTES];
    if (reader->left_bytes != 0) {
        return fail_damaged(reader, "the file is longer than its contents");
    }
    DUNLIN_TRY(read_exactly(reader, bytes, sizeof bytes));
    return get_number(bytes, sizeof bytes) == reader->crc
               ? DUNLIN_OK
               : fail_damaged(reader, "the checksum is wrong");
}

/* One pass over the file; `is_applied`: the tensors are taken over on the way. */
static dunlin_status read_all(checkpoint_reader *reader, checkpoint_head *out_head,
                              dunlin_properties *properties, bool is_applied)
{
    reader->crc = crc32(0, Z_NULL, 0);
    if (lseek(reader->fd, 0, SEEK_SET) != 0) {
        return fail_damaged(reader, "not a file that can be read twice");
    }
    DUNLIN_TRY(get_head(reader, out_head));
    DUNLIN_TRY(check_head(reader, out_head));
    DUNLIN_TRY(get_properties(reader, out_head->n_properties, properties));
    DUNLIN_TRY(get_tensors(reader, is_applied));
    return get_checksum(reader);
}

static dunlin_status load_open(dunlin_trainer *trainer, checkpoint_reader *reader)
{
    checkpoint_head head = {.n_params = 0};
    dunlin_properties properties = {.items = NULL};
    dunlin_status status = read_all(reader, &head, &properties, false);
    if (status == DUNLIN_OK) {
        /* From here on a failing disk leaves a mixture, and the trainer says so until it is whole.
         */
        dunlin__trainer_tear(trainer);
        dunlin__trainer_forget_rows(trainer);
        status = read_all(reader, &head, NULL, true);
    }
    if (status != DUNLIN_OK) {
        dunlin__properties_free(trainer, &properties);
        return status;
    }
    dunlin__properties_free(trainer, &trainer->properties);
    trainer->properties = properties;
    trainer->step = (int64_t)head.step;
    trainer->seed = head.seed;
    trainer->is_torn = false;
    if (trainer->swap != NULL) {
        trainer->swap->file.has_lost = false;
    }
    return DUNLIN_OK;
}

static dunlin_status load_checkpoint(dunlin_trainer *trainer, const char *path)
{
    if (path == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no path of a checkpoint");
    }
    checkpoint_reader reader = {.trainer = trainer, .path = path};
    reader.fd = dunlin__sys_open(path, O_RDONLY, 0);
    if (reader.fd < 0) {
        const int reason = errno;
        return dunlin__fail(trainer->error, DUNLIN_IO, "checkpoint", reason,
                            "%.160s: cannot be opened (system error %d)", path, reason);
    }
    const dunlin_status status = load_open(trainer, &reader);
    (void)close(reader.fd);
    return status;
}

dunlin_status dunlin_trainer_load_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, load_checkpoint(trainer, path));
}
