/*
 * checkpoint_read.c - a trainer's state from a file or from memory. checkpoint.c has the format.
 *
 * Invariant: all is read to its end and found right before anything of the trainer changes.
 */
#include "checkpoint.h"
#include "properties.h"
#include "step/context/guard.h"
#include "step/run/layout.h"
#include "step/run/values.h"
#include "weights.h"

#include <dunlin/bytes.h>
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

static uint64_t get_number(const unsigned char *bytes, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    return number;
}

typedef struct checkpoint_reader {
    const dunlin_trainer *trainer;
    const char *path;           /* or what memory is called */
    int fd;                     /* of a file */
    const unsigned char *bytes; /* NULL: a file */
    uint64_t n_bytes;
    uint64_t at;         /* in the bytes */
    uint64_t left_bytes; /* before the checksum */
    uLong crc;
} checkpoint_reader;

static dunlin_status fail_damaged(const checkpoint_reader *reader, const char *what)
{
    return dunlin__fail(reader->trainer->error, DUNLIN_DIGEST, "checkpoint", 0, "%.160s: %s",
                        reader->path, what);
}

static dunlin_status read_exactly(checkpoint_reader *reader, void *out, size_t n)
{
    if (reader->bytes != NULL) {
        if (n > reader->n_bytes - reader->at) {
            return fail_damaged(reader, "it ends too early");
        }
        memcpy(out, reader->bytes + reader->at, n);
        reader->at += n;
        return DUNLIN_OK;
    }
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

static dunlin_status get_head(checkpoint_reader *reader, dunlin_checkpoint_head *out_head)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_HEAD_BYTES];
    if (reader->n_bytes < DUNLIN_CHECKPOINT_HEAD_BYTES + DUNLIN_CHECKPOINT_CRC_BYTES) {
        return fail_damaged(reader, "too short for a checkpoint");
    }
    reader->left_bytes = reader->n_bytes - DUNLIN_CHECKPOINT_CRC_BYTES;
    DUNLIN_TRY(get_bytes(reader, bytes, sizeof bytes));
    if (memcmp(bytes, DUNLIN_CHECKPOINT_MAGIC, 8) != 0) {
        return fail_damaged(reader, "not a checkpoint");
    }
    const uint64_t version = get_number(bytes + 8, 4);
    if (version < 1 || version > DUNLIN_CHECKPOINT_RANGES_VERSION) {
        return dunlin__fail(reader->trainer->error, DUNLIN_VERSION, "checkpoint", 0,
                            "%.120s: format version %" PRIu64 "; this library reads 1 to %d",
                            reader->path, version, DUNLIN_CHECKPOINT_RANGES_VERSION);
    }
    *out_head = (dunlin_checkpoint_head){.version = (uint32_t)version,
                                         .n_params = (uint32_t)get_number(bytes + 12, 4),
                                         .n_properties = (uint32_t)get_number(bytes + 16, 4),
                                         .file_bytes = get_number(bytes + 20, 8),
                                         .model = get_number(bytes + 28, 8),
                                         .optimizer = get_number(bytes + 36, 8),
                                         .step = get_number(bytes + 44, 8),
                                         .seed = get_number(bytes + 52, 8)};
    if (out_head->file_bytes != reader->n_bytes) {
        return fail_damaged(reader, "the file's size is not the one it names");
    }
    return DUNLIN_OK;
}

/* The storage that the file was written with, as its fingerprint tells; NULL: one of fewer bits,
 * but something else differs too. */
static const char *storage_there(const checkpoint_reader *reader,
                                 const dunlin_checkpoint_head *head)
{
    if (head->version != DUNLIN_CHECKPOINT_STORAGE_VERSION) {
        return dunlin_storage_name(DUNLIN_STORAGE_EXACT);
    }
    static const dunlin_storage narrow[] = {DUNLIN_STORAGE_BF16, DUNLIN_STORAGE_INT8};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        if (head->optimizer == dunlin__checkpoint_print(reader->trainer, narrow[i])) {
            return dunlin_storage_name(narrow[i]);
        }
    }
    return NULL;
}

/* MISMATCH: the trainer's storage is another one. */
static dunlin_status check_stored(const checkpoint_reader *reader,
                                  const dunlin_checkpoint_head *head)
{
    const dunlin_storage own = reader->trainer->options.storage;
    const char *there = storage_there(reader, head);
    if (there == NULL ? own != DUNLIN_STORAGE_EXACT
                      : strcmp(there, dunlin_storage_name(own)) == 0) {
        return DUNLIN_OK;
    }
    return dunlin__fail(reader->trainer->error, DUNLIN_MISMATCH, "checkpoint", 0,
                        "%.120s: option storage is %s there and %s in the trainer", reader->path,
                        there == NULL ? "bf16 or int8" : there, dunlin_storage_name(own));
}

static dunlin_status check_head(const checkpoint_reader *reader, const dunlin_checkpoint_head *head)
{
    const dunlin_checkpoint_head expected = dunlin__checkpoint_head(reader->trainer);
    if (head->n_params != expected.n_params || head->model != expected.model) {
        return dunlin__fail(reader->trainer->error, DUNLIN_MISMATCH, "checkpoint", 0,
                            "%.120s: belongs to another model (%" PRIu32
                            " parameters; the trainer has %" PRIu32 ")",
                            reader->path, head->n_params, expected.n_params);
    }
    DUNLIN_TRY(check_stored(reader, head));
    const bool has_sites = dunlin__precision_is_whole(reader->trainer->precision);
    const bool has_ranges = reader->trainer->precision != NULL && !has_sites;
    if (head->optimizer != expected.optimizer ||
        (head->version == DUNLIN_CHECKPOINT_INTEGER_VERSION) != has_sites ||
        (head->version == DUNLIN_CHECKPOINT_RANGES_VERSION) != has_ranges) {
        return dunlin__fail(
            reader->trainer->error, DUNLIN_MISMATCH, "checkpoint", 0,
            "%.120s: optimiser, momentum, slots, precision or frozen parameters are not as in "
            "the trainer",
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

static dunlin_status get_site(checkpoint_reader *reader, dunlin_integer_site *out_site)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_SITE_BYTES];
    DUNLIN_TRY(get_bytes(reader, bytes, sizeof bytes));
    *out_site = (dunlin_integer_site){.exponent = (int32_t)get_number(bytes, 4),
                                      .is_known = (int32_t)get_number(bytes + 4, 4),
                                      .n_raised = (int32_t)get_number(bytes + 8, 4),
                                      .n_lowered = (int32_t)get_number(bytes + 12, 4),
                                      .n_clipped = (int64_t)get_number(bytes + 16, 8)};
    const bool is_in_range = out_site->exponent >= -DUNLIN_SITE_MAX_EXPONENT &&
                             out_site->exponent <= DUNLIN_SITE_MAX_EXPONENT &&
                             (out_site->is_known == 0 || out_site->is_known == 1) &&
                             out_site->n_raised >= 0 && out_site->n_lowered >= 0 &&
                             out_site->n_clipped >= 0;
    return is_in_range ? DUNLIN_OK : fail_damaged(reader, "an exponent or a count is out of range");
}

/* Those that are no parameter's, at the end. */
static dunlin_status get_other_sites(checkpoint_reader *reader, bool is_applied)
{
    const dunlin_trainer *trainer = reader->trainer;
    dunlin_integer_site *sites = dunlin__values_sites(&trainer->train, &trainer->arena);
    unsigned char number[4];
    DUNLIN_TRY(get_bytes(reader, number, sizeof number));
    if (get_number(number, 4) != trainer->train.step->n_sites - trainer->net.n_params) {
        return fail_damaged(reader, "the number of its exponents is not the network's");
    }
    for (size_t i = trainer->net.n_params; i < trainer->train.step->n_sites; i++) {
        dunlin_integer_site site;
        DUNLIN_TRY(get_site(reader, &site));
        if (is_applied) {
            sites[i] = site;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status get_range(checkpoint_reader *reader, dunlin_range *out_range)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_RANGE_BYTES];
    DUNLIN_TRY(get_bytes(reader, bytes, sizeof bytes));
    const uint32_t range = (uint32_t)get_number(bytes, 4);
    const uint32_t spread = (uint32_t)get_number(bytes + 4, 4);
    *out_range = (dunlin_range){.bits = (int32_t)get_number(bytes + 8, 4),
                                .n_raised = (int32_t)get_number(bytes + 12, 4),
                                .n_lowered = (int32_t)get_number(bytes + 16, 4),
                                .n_clipped = (int64_t)get_number(bytes + 20, 8)};
    memcpy(&out_range->range, &range, sizeof range);
    memcpy(&out_range->spread, &spread, sizeof spread);
    return dunlin__range_is_sound(out_range)
               ? DUNLIN_OK
               : fail_damaged(reader, "a range or a count is out of range");
}

static dunlin_status get_ranges(checkpoint_reader *reader, bool is_applied)
{
    const dunlin_trainer *trainer = reader->trainer;
    dunlin_range *ranges = dunlin__values_ranges(&trainer->train, &trainer->arena);
    unsigned char number[4];
    DUNLIN_TRY(get_bytes(reader, number, sizeof number));
    if (get_number(number, 4) != trainer->train.step->n_sites) {
        return fail_damaged(reader, "the number of its ranges is not the network's");
    }
    for (size_t i = 0; i < trainer->train.step->n_sites; i++) {
        dunlin_range range;
        DUNLIN_TRY(get_range(reader, &range));
        if (is_applied) {
            ranges[i] = range;
        }
    }
    return DUNLIN_OK;
}

/* A block of a tensor: the weights of a parameter, or a state of it. */
static void apply_block(const dunlin_trainer *trainer, size_t index, uint32_t tensor, int64_t first,
                        int64_t n, const float *values)
{
    if (tensor == trainer->train.step->params[index].tensor) {
        dunlin__values_put(&trainer->train, &trainer->arena, &trainer->net, (uint32_t)index, first,
                           n, values);
    } else {
        dunlin__layout_store(&trainer->net.params[index], dunlin__trainer_floats(trainer, tensor),
                             first, n, values);
    }
}

/* `site` NULL: in float32. */
static dunlin_status get_tensor(checkpoint_reader *reader, size_t index, uint32_t tensor,
                                const dunlin_integer_site *site, bool is_applied)
{
    const dunlin_net_param *param = &reader->trainer->net.params[index];
    float values[DUNLIN_CHECKPOINT_BLOCK_FLOATS];
    unsigned char bytes[DUNLIN_CHECKPOINT_BLOCK_FLOATS * sizeof(float)] = {0};
    for (int64_t first = 0; first < param->n_elements; first += DUNLIN_CHECKPOINT_BLOCK_FLOATS) {
        const int64_t left = param->n_elements - first;
        const int64_t n =
            left < DUNLIN_CHECKPOINT_BLOCK_FLOATS ? left : DUNLIN_CHECKPOINT_BLOCK_FLOATS;
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
        if (site != NULL && !dunlin__values_are_exact(&reader->trainer->train, site, values, n)) {
            return fail_damaged(reader, "a weight is no multiple of its exponent's power");
        }
        if (is_applied) {
            apply_block(reader->trainer, index, tensor, first, n, values);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status get_tensors(checkpoint_reader *reader, bool is_applied)
{
    const dunlin_trainer *trainer = reader->trainer;
    dunlin_integer_site *sites = dunlin__values_sites(&trainer->train, &trainer->arena);
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        uint32_t tensors[DUNLIN_CHECKPOINT_MAX_TENSORS];
        const size_t n = dunlin__checkpoint_tensors(trainer, i, tensors);
        dunlin_integer_site site;
        if (sites != NULL) {
            DUNLIN_TRY(get_site(reader, &site));
        }
        if (sites != NULL && is_applied) {
            sites[i] = site;
        }
        for (size_t t = 0; t < n; t++) {
            DUNLIN_TRY(get_tensor(reader, i, tensors[t], sites != NULL ? &site : NULL, is_applied));
        }
    }
    if (sites == NULL && trainer->precision != NULL) {
        return get_ranges(reader, is_applied);
    }
    return sites != NULL ? get_other_sites(reader, is_applied) : DUNLIN_OK;
}

static dunlin_status get_checksum(checkpoint_reader *reader)
{
    unsigned char bytes[DUNLIN_CHECKPOINT_CRC_BYTES];
    if (reader->left_bytes != 0) {
        return fail_damaged(reader, "the file is longer than its contents");
    }
    DUNLIN_TRY(read_exactly(reader, bytes, sizeof bytes));
    return get_number(bytes, sizeof bytes) == reader->crc
               ? DUNLIN_OK
               : fail_damaged(reader, "the checksum is wrong");
}

/* To the file's beginning, with the bytes that it has now. */
static dunlin_status rewind_file(checkpoint_reader *reader)
{
    struct stat info;
    if (reader->bytes != NULL) {
        return DUNLIN_OK;
    }
    if (lseek(reader->fd, 0, SEEK_SET) != 0) {
        return fail_damaged(reader, "not a file that can be read twice");
    }
    if (fstat(reader->fd, &info) != 0 || info.st_size < 0) {
        return fail_damaged(reader, "too short for a checkpoint");
    }
    reader->n_bytes = (uint64_t)info.st_size;
    return DUNLIN_OK;
}

/* One pass over the file; `is_applied`: the tensors are taken over on the way. */
static dunlin_status read_all(checkpoint_reader *reader, dunlin_checkpoint_head *out_head,
                              dunlin_properties *properties, bool is_applied)
{
    reader->crc = crc32(0, Z_NULL, 0);
    reader->at = 0;
    DUNLIN_TRY(rewind_file(reader));
    DUNLIN_TRY(get_head(reader, out_head));
    DUNLIN_TRY(check_head(reader, out_head));
    DUNLIN_TRY(get_properties(reader, out_head->n_properties, properties));
    DUNLIN_TRY(get_tensors(reader, is_applied));
    return get_checksum(reader);
}

static dunlin_status load_open(dunlin_trainer *trainer, checkpoint_reader *reader)
{
    dunlin_checkpoint_head head = {.n_params = 0};
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
                            "path of the checkpoint is NULL");
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

static dunlin_status read_checkpoint(dunlin_trainer *trainer, const void *bytes, size_t n)
{
    if (bytes == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "bytes of the checkpoint is NULL");
    }
    checkpoint_reader reader = {
        .trainer = trainer, .path = "memory", .fd = -1, .bytes = bytes, .n_bytes = n};
    return load_open(trainer, &reader);
}

dunlin_status dunlin_trainer_read_checkpoint(dunlin_trainer *trainer, const void *bytes, size_t n)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, read_checkpoint(trainer, bytes, n));
}

dunlin_status dunlin_trainer_load_checkpoint(dunlin_trainer *trainer, const char *path)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, load_checkpoint(trainer, path));
}
