/*
 * fuzz_own.c - any bytes as a user's file: a table, NumPy arrays, an archive. Refused in one line
 * that names the file, or read to finite numbers. The first byte picks the format; of two arrays
 * the second byte says where the second begins.
 */
#include <mem/support.h>

#include <data/files/zip.h>
#include <data/readers/own_rows.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static dunlin_status begin_file(void *ctx, const char *file, const dunlin_shape *shape,
                                dunlin_error *error)
{
    (void)file;
    (void)error;
    int64_t *n_values = ctx;
    require(shape->n_dims >= 1);
    require(dunlin_shape_count(shape, n_values) == DUNLIN_OK && *n_values >= 1);
    return DUNLIN_OK;
}

static dunlin_status check_row(void *ctx, const dunlin_own_row *row, const char *where,
                               dunlin_error *error)
{
    (void)error;
    const int64_t *n_values = ctx;
    require(where[0] != '\0' && isfinite(row->label));
    for (int64_t i = 0; i < *n_values; i++) {
        require(isfinite(row->values[i]));
    }
    return DUNLIN_OK;
}

/* Every member that an archive has, to its end. */
static dunlin_status read_members(const uint8_t *data, size_t size, const dunlin_alloc *alloc,
                                  dunlin_error *error)
{
    dunlin_zip zip;
    dunlin_zip_member member;
    bool has_member = false;
    uint64_t n_members = 0;
    DUNLIN_TRY(dunlin__zip_open(&zip, NULL, data, size, error));
    zip.name = "fuzz:";
    DUNLIN_TRY(dunlin__zip_next(&zip, &member, &has_member, error));
    while (has_member && n_members < 64) {
        dunlin_bytes bytes;
        uint8_t block[4096];
        size_t n = sizeof block;
        DUNLIN_TRY(dunlin__bytes_open_part(&bytes, NULL, data, &member.part, alloc, error));
        bytes.name = "fuzz:";
        dunlin_status status = DUNLIN_OK;
        while (status == DUNLIN_OK && n == sizeof block) {
            status = dunlin__bytes_read_some(&bytes, block, sizeof block, &n, error);
        }
        dunlin__bytes_close(&bytes);
        DUNLIN_TRY(status);
        DUNLIN_TRY(dunlin__zip_next(&zip, &member, &has_member, error));
        n_members++;
    }
    return DUNLIN_OK;
}

static dunlin_status read_csv(const uint8_t *data, size_t size, bool has_client,
                              const dunlin_own_visitor *visitor, const dunlin_alloc *alloc,
                              dunlin_error *error)
{
    const dunlin_own_spec spec = {.client = has_client ? "who" : NULL};
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__bytes_open_memory(&bytes, "fuzz:", data, size, alloc, error));
    const dunlin_status status = dunlin__own_read_csv_rows(alloc, &spec, &bytes, visitor, error);
    dunlin__bytes_close(&bytes);
    return status;
}

static dunlin_status read_npy(const uint8_t *data, size_t size, const dunlin_own_visitor *visitor,
                              const dunlin_alloc *alloc, dunlin_error *error)
{
    const size_t cut = size == 0 ? 0 : data[0] < size - 1 ? data[0] : size - 1;
    dunlin_bytes x;
    dunlin_bytes y;
    if (size == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(
        dunlin__bytes_open_memory(&x, "fuzz:", data + 1 + cut, size - 1 - cut, alloc, error));
    dunlin_status status = dunlin__bytes_open_memory(&y, "fuzz:", data + 1, cut, alloc, error);
    if (status == DUNLIN_OK) {
        status = dunlin__own_read_npy_rows(alloc, &x, &y, visitor, error);
        dunlin__bytes_close(&y);
    }
    dunlin__bytes_close(&x);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    int64_t n_values = 0;
    const dunlin_own_visitor visitor = {&n_values, begin_file, check_row};
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    counter.limit_bytes = 64 << 20;
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_OK;
    switch (data[0] % 4) {
    case 0:
        status = read_npy(data + 1, size - 1, &visitor, &counter.hooks, &error);
        break;
    case 1:
        status = read_members(data + 1, size - 1, &counter.hooks, &error);
        break;
    default:
        status = read_csv(data + 1, size - 1, data[0] % 4 == 3, &visitor, &counter.hooks, &error);
        break;
    }
    require(counter.now_bytes == 0);
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    require(strchr(error.text, '\n') == NULL);
    return 0;
}
