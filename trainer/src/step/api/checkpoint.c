/*
 * checkpoint.c - a trainer's state as a file or as bytes, written; checkpoint_read.c reads it.
 *
 * All numbers little-endian: "DUNLINCK", version, number of parameters, number of properties, bytes
 * of the file, fingerprints of the model and of the optimiser's state, step, seed; the properties;
 * for each parameter, in ONNX's order, its weights, its momentum (or Adam's two means) and its
 * slots; CRC-32 of all that. Version 1 knew SGD alone, and is otherwise the same. Version 3 is of a
 * trainer in integers: before a parameter's weights its site, after the last one the number of the
 * other sites and these (integer/site.h).
 * Version 4 is of a trainer whose steps store in fewer bits, which the fingerprint of the optimiser
 * names; otherwise as version 2.
 * Invariant: what could not be read back, since a value is not finite, does not become a file.
 */
#include "checkpoint.h"

#include "integer/precision.h"
#include "kernels/simd/finite.h"
#include "properties.h"
#include "step/context/guard.h"
#include "step/run/layout.h"
#include "step/run/values.h"
#include "weights.h"

#include <dunlin/bytes.h>
#include <mem/outfile.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

static void put_number(unsigned char *out, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        out[i] = (unsigned char)(number >> (8 * i));
    }
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

size_t dunlin__checkpoint_tensors(const dunlin_trainer *trainer, size_t param,
                                  uint32_t *out_tensors)
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

uint32_t dunlin__checkpoint_version(const dunlin_trainer *trainer)
{
    if (trainer->precision != NULL) {
        return dunlin__precision_is_whole(trainer->precision) ? DUNLIN_CHECKPOINT_INTEGER_VERSION
                                                              : DUNLIN_CHECKPOINT_RANGES_VERSION;
    }
    return trainer->options.storage == DUNLIN_STORAGE_EXACT ? DUNLIN_CHECKPOINT_VERSION
                                                            : DUNLIN_CHECKPOINT_STORAGE_VERSION;
}

uint64_t dunlin__checkpoint_print(const dunlin_trainer *trainer, dunlin_storage storage)
{
    uint64_t print = UINT64_C(0xcbf29ce484222325);
    if (trainer->options.optimizer != DUNLIN_OPTIMIZER_SGD) {
        add_number_to_print(&print, (uint64_t)trainer->options.optimizer);
    }
    if (trainer->precision != NULL) {
        const char *name = dunlin__precision_name(trainer->precision);
        add_to_print(&print, name, strlen(name) + 1);
    }
    if (storage != DUNLIN_STORAGE_EXACT) {
        add_number_to_print(&print, (uint64_t)storage);
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        uint32_t tensors[DUNLIN_CHECKPOINT_MAX_TENSORS];
        const size_t n_tensors = dunlin__checkpoint_tensors(trainer, i, tensors);
        const bool has_momentum = trainer->train.step->params[i].momentum != DUNLIN_STEP_NONE;
        add_number_to_print(&print, n_tensors * 2 + (has_momentum ? 1 : 0));
    }
    return print;
}

dunlin_checkpoint_head dunlin__checkpoint_head(const dunlin_trainer *trainer)
{
    dunlin_checkpoint_head head = {
        .n_params = (uint32_t)trainer->net.n_params,
        .model = UINT64_C(0xcbf29ce484222325),
        .optimizer = dunlin__checkpoint_print(trainer, trainer->options.storage),
        .step = (uint64_t)trainer->step,
        .seed = trainer->seed,
        .file_bytes = DUNLIN_CHECKPOINT_HEAD_BYTES + DUNLIN_CHECKPOINT_CRC_BYTES};
    if (trainer->precision != NULL) {
        head.file_bytes +=
            4 + trainer->train.step->n_sites * (dunlin__precision_is_whole(trainer->precision)
                                                    ? DUNLIN_CHECKPOINT_SITE_BYTES
                                                    : DUNLIN_CHECKPOINT_RANGE_BYTES);
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_net_param *param = &trainer->net.params[i];
        add_to_print(&head.model, param->name, strlen(param->name) + 1);
        add_number_to_print(&head.model, (uint64_t)param->role);
        add_number_to_print(&head.model, (uint64_t)param->shape.n_dims);
        for (int32_t d = 0; d < param->shape.n_dims; d++) {
            add_number_to_print(&head.model, (uint64_t)param->shape.dims[d]);
        }
        uint32_t tensors[DUNLIN_CHECKPOINT_MAX_TENSORS];
        const size_t n_tensors = dunlin__checkpoint_tensors(trainer, i, tensors);
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

static dunlin_status put_head(checkpoint_writer *writer, const dunlin_checkpoint_head *head)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_HEAD_BYTES] = DUNLIN_CHECKPOINT_MAGIC;
    put_number(bytes + 8, head->version, 4);
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

/* The weights of a parameter, or a state of it. */
static dunlin_status put_tensor(checkpoint_writer *writer, const dunlin_trainer *trainer,
                                size_t index, uint32_t tensor)
{
    const dunlin_net_param *param = &trainer->net.params[index];
    const bool is_weight = tensor == trainer->train.step->params[index].tensor;
    float values[DUNLIN_CHECKPOINT_BLOCK_FLOATS];
    unsigned char bytes[DUNLIN_CHECKPOINT_BLOCK_FLOATS * sizeof(float)];
    for (int64_t first = 0; first < param->n_elements; first += DUNLIN_CHECKPOINT_BLOCK_FLOATS) {
        const int64_t left = param->n_elements - first;
        const int64_t n =
            left < DUNLIN_CHECKPOINT_BLOCK_FLOATS ? left : DUNLIN_CHECKPOINT_BLOCK_FLOATS;
        if (is_weight) {
            dunlin__values_load(&trainer->train, &trainer->arena, &trainer->net, (uint32_t)index,
                                first, n, values);
        } else {
            dunlin__layout_load(param, dunlin__trainer_floats(trainer, tensor), first, n, values);
        }
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

static dunlin_status put_site(checkpoint_writer *writer, const dunlin_integer_site *site)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_SITE_BYTES];
    put_number(bytes, (uint64_t)(int64_t)site->exponent, 4);
    put_number(bytes + 4, (uint64_t)(int64_t)site->is_known, 4);
    put_number(bytes + 8, (uint64_t)(int64_t)site->n_raised, 4);
    put_number(bytes + 12, (uint64_t)(int64_t)site->n_lowered, 4);
    put_number(bytes + 16, (uint64_t)site->n_clipped, 8);
    return put_bytes(writer, bytes, sizeof bytes);
}

/* Those that are no parameter's. */
static dunlin_status put_other_sites(checkpoint_writer *writer, const dunlin_trainer *trainer,
                                     const dunlin_integer_site *sites)
{
    const size_t n_params = trainer->net.n_params;
    const size_t n_sites = trainer->train.step->n_sites;
    unsigned char number[4];
    put_number(number, n_sites - n_params, sizeof number);
    DUNLIN_TRY(put_bytes(writer, number, sizeof number));
    for (size_t i = n_params; i < n_sites; i++) {
        DUNLIN_TRY(put_site(writer, &sites[i]));
    }
    return DUNLIN_OK;
}

/* All of them, with their number. */
static dunlin_status put_ranges(checkpoint_writer *writer, const dunlin_trainer *trainer,
                                const dunlin_range *ranges)
{
    const size_t n = trainer->train.step->n_sites;
    unsigned char number[4];
    put_number(number, n, sizeof number);
    DUNLIN_TRY(put_bytes(writer, number, sizeof number));
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[DUNLIN_CHECKPOINT_RANGE_BYTES];
        uint32_t range = 0;
        uint32_t spread = 0;
        memcpy(&range, &ranges[i].range, sizeof range);
        memcpy(&spread, &ranges[i].spread, sizeof spread);
        put_number(bytes, range, 4);
        put_number(bytes + 4, spread, 4);
        put_number(bytes + 8, (uint64_t)(int64_t)ranges[i].bits, 4);
        put_number(bytes + 12, (uint64_t)(int64_t)ranges[i].n_raised, 4);
        put_number(bytes + 16, (uint64_t)(int64_t)ranges[i].n_lowered, 4);
        put_number(bytes + 20, (uint64_t)ranges[i].n_clipped, 8);
        DUNLIN_TRY(put_bytes(writer, bytes, sizeof bytes));
    }
    return DUNLIN_OK;
}

static dunlin_status put_all(checkpoint_writer *writer, const dunlin_trainer *trainer)
{
    dunlin_checkpoint_head head = dunlin__checkpoint_head(trainer);
    head.n_properties = (uint32_t)trainer->properties.n;
    for (size_t i = 0; i < trainer->properties.n; i++) {
        /* Two lengths of two bytes, and the texts without their zeros. */
        head.file_bytes += 4 + trainer->properties.items[i].bytes - 2;
    }
    const dunlin_integer_site *sites = dunlin__values_sites(&trainer->train, &trainer->arena);
    head.version = dunlin__checkpoint_version(trainer);
    DUNLIN_TRY(put_head(writer, &head));
    DUNLIN_TRY(put_properties(writer, &trainer->properties));
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        uint32_t tensors[DUNLIN_CHECKPOINT_MAX_TENSORS];
        const size_t n = dunlin__checkpoint_tensors(trainer, i, tensors);
        if (sites != NULL) {
            DUNLIN_TRY(put_site(writer, &sites[i]));
        }
        for (size_t t = 0; t < n; t++) {
            DUNLIN_TRY(put_tensor(writer, trainer, i, tensors[t]));
        }
    }
    if (sites != NULL) {
        DUNLIN_TRY(put_other_sites(writer, trainer, sites));
    } else if (trainer->precision != NULL) {
        DUNLIN_TRY(
            put_ranges(writer, trainer, dunlin__values_ranges(&trainer->train, &trainer->arena)));
    }
    unsigned char crc[DUNLIN_CHECKPOINT_CRC_BYTES];
    put_number(crc, writer->crc, sizeof crc);
    return dunlin__outfile_write(&writer->file, crc, sizeof crc, writer->error);
}

static dunlin_status save_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (path == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "path of the checkpoint is NULL");
    }
    checkpoint_writer writer = {.crc = crc32(0, Z_NULL, 0), .error = trainer->error};
    DUNLIN_TRY(dunlin__outfile_open(&writer.file, path, 0666, trainer->error));
    const dunlin_status status = put_all(&writer, trainer);
    return dunlin__outfile_close(&writer.file, status, trainer->error);
}

static dunlin_status write_checkpoint(dunlin_trainer *trainer, dunlin_write_fn write_fn, void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (write_fn == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "write_fn of the checkpoint is NULL");
    }
    checkpoint_writer writer = {.crc = crc32(0, Z_NULL, 0), .error = trainer->error};
    dunlin__outfile_to(&writer.file, "the checkpoint", write_fn, ctx);
    return put_all(&writer, trainer);
}

dunlin_status dunlin_trainer_write_checkpoint(dunlin_trainer *trainer, dunlin_write_fn write_fn,
                                              void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, write_checkpoint(trainer, write_fn, ctx));
}

dunlin_status dunlin_trainer_save_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, save_checkpoint(trainer, path));
}
