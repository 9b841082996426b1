/*
 * fuzz_packed.c - any bytes as a packed tensor, under each packing: refused in one line, or finite
 * values whose norm is that of their squares, within one piece of 64 KiB.
 *
 * The first bytes choose: values, bits, selection, flags, block size, kept, elements (2 bytes).
 */
#include <dunlin/alloc.h>
#include <wire/compress.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD_BYTES 8u

typedef struct reading {
    const uint8_t *bytes;
    size_t n_left;
} reading;

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static dunlin_status give(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    reading *from = ctx;
    (void)error;
    require(n_bytes > 0 && n_bytes <= from->n_left);
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    from->n_left -= n_bytes;
    return DUNLIN_OK;
}

static dunlin__packing choose(const uint8_t *head)
{
    dunlin__packing packing = {.version = 1,
                               .values = (dunlin_v1_values_t)(head[0] % 6),
                               .bits = head[1] % 10,
                               .selection = (dunlin_v1_selection_t)(head[2] % 3),
                               .kept_ppm = head[5] * 4000u,
                               .is_rotated = (head[3] & 1u) != 0,
                               .is_entropy_coded = (head[3] & 2u) != 0,
                               .block_values = 64u << head[4] % 8,
                               .round = head[3]};
    /* What would be refused for a detail is made right, so that the bytes are looked at. */
    packing.bits = (packing.values == DUNLIN_V1_VALUES_LEVELS) ? packing.bits : 0;
    if (packing.selection == DUNLIN_V1_SELECTION_ALL) {
        packing.kept_ppm = 0;
    }
    if (packing.is_rotated || packing.selection == DUNLIN_V1_SELECTION_RANDOM) {
        packing.seed.size = DUNLIN_PACK_SEED_BYTES;
    }
    return packing;
}

static dunlin_status read_all(dunlin__tensor_unpacker *unpacker, uint64_t n_elements,
                              uint64_t n_bytes, dunlin_error *error)
{
    const float *values = NULL;
    size_t n = 1;
    uint64_t n_all = 0;
    dunlin__norm norm = {.n_values = 0};
    dunlin_status status = dunlin__tensor_unpacker_tensor(unpacker, 1, DUNLIN_V1_RULE_AVERAGE,
                                                          n_elements, n_bytes, error);
    while (status == DUNLIN_OK && n > 0) {
        status = dunlin__tensor_unpacker_next(unpacker, &values, &n, error);
        for (size_t i = 0; i < n; i++) {
            require(isfinite(values[i]));
        }
        dunlin__norm_add(&norm, values, n);
        n_all += n;
        require(n_all <= n_elements);
    }
    if (status == DUNLIN_OK) {
        require(n_all == n_elements);
        require(dunlin__tensor_unpacker_square(unpacker) == dunlin__norm_square(&norm));
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD_BYTES) {
        return 0;
    }
    reading from = {.bytes = data + HEAD_BYTES, .n_left = size - HEAD_BYTES};
    const dunlin__unpack_source source = {.ctx = &from, .read_fn = give};
    const dunlin__packing packing = choose(data);
    const uint64_t n_elements = (uint64_t)data[6] | (uint64_t)data[7] << 8;
    dunlin_alloc_counter counter;
    dunlin_error error = {0};
    dunlin__tensor_unpacker *unpacker = NULL;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_status status =
        dunlin__tensor_unpacker_open(&packing, &source, &counter.hooks, &unpacker, &error);
    if (status == DUNLIN_OK) {
        status = read_all(unpacker, n_elements, size - HEAD_BYTES, &error);
        require(status != DUNLIN_OK || from.n_left == 0);
    }
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    dunlin__tensor_unpacker_close(unpacker);
    require(counter.peak_bytes <= DUNLIN_PACK_MEMORY_BYTES && counter.now_bytes == 0);
    return 0;
}
