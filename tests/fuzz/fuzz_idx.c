/*
 * fuzz_idx.c - any bytes as an IDX file, plain or gzip: refused in one line, or read to an end that
 * agrees with the header. The first byte picks type and dimensions.
 */
#include <mem/support.h>

#include <data/files/idx.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static dunlin_status read_file(dunlin_bytes *bytes, dunlin_idx_type type, int32_t n_dims,
                               dunlin_error *error)
{
    dunlin_idx_header header = {0};
    DUNLIN_TRY(dunlin__idx_read_header(bytes, type, n_dims, &header, error));
    uint64_t n_bytes = header.n_elements * (type == DUNLIN_IDX_I32 ? 4 : 1);
    require(bytes->position == 4 + 4 * (uint64_t)n_dims);
    require(n_bytes > 0 && bytes->position + n_bytes <= bytes->limit_bytes);
    uint64_t product = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        require(header.dims[i] > 0);
        product *= (uint64_t)header.dims[i];
    }
    require(product == header.n_elements);
    uint8_t part[997];
    int32_t numbers[31];
    for (uint64_t left = header.n_elements; left > 0;) {
        uint64_t room = type == DUNLIN_IDX_I32 ? 31 : sizeof part;
        size_t n = (size_t)(left < room ? left : room);
        DUNLIN_TRY(type == DUNLIN_IDX_I32 ? dunlin__idx_read_i32(bytes, numbers, n, error)
                                          : dunlin__bytes_read(bytes, part, n, error));
        left -= n;
    }
    require(bytes->position == 4 + 4 * (uint64_t)n_dims + n_bytes);
    return dunlin__bytes_expect_end(bytes, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        dunlin_idx_type type;
        int32_t n_dims;
    } kinds[] = {{DUNLIN_IDX_U8, 3}, {DUNLIN_IDX_U8, 1}, {DUNLIN_IDX_I32, 2}};
    if (size == 0) {
        return 0;
    }
    size_t kind = data[0] % 3;
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_bytes bytes;
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__bytes_open_memory(&bytes, "fuzz", data + 1, size - 1, &counter.hooks, &error);
    if (status == DUNLIN_OK) {
        status = read_file(&bytes, kinds[kind].type, kinds[kind].n_dims, &error);
        dunlin__bytes_close(&bytes);
    }
    require(counter.now_bytes == 0);
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    require(strchr(error.text, '\n') == NULL);
    return 0;
}
