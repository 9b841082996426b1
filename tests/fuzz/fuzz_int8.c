/*
 * fuzz_int8.c - any bytes as an INT8_SCALE tensor: refused in one line, or finite values that are
 * whole multiples of their scale, and that are encoded to the same values again.
 *
 * The first byte is the size of the pieces, less 1; what follows is the tensor.
 */
#include <wire/int8.h>

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST 65536u

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static bool is_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (a[i] < b[i] || a[i] > b[i]) {
            return false;
        }
    }
    return true;
}

/* The values as a device would write them: a scale that is no smaller, and the same values. Its own
 * is the largest that there is, which may be above what is allowed: then it writes none. */
static void there_and_back(const float *values, size_t n, float scale)
{
    static int8_t bytes[MOST];
    static float again[MOST];
    uint8_t head[DUNLIN_INT8_SCALE_BYTES];
    dunlin__int8_range range = {.has_values = false};
    dunlin_error error = {0};
    float own = 0.0F;
    float read = 0.0F;
    require(dunlin__int8_range_add(&range, "t", values, n, &error) == DUNLIN_OK);
    const dunlin_status status = dunlin__int8_scale_of(&range, "t", &own, &error);
    require((status == DUNLIN_OK) == (!range.has_values || range.lowest <= DUNLIN_INT8_SCALE_MOST));
    if (status != DUNLIN_OK) {
        return;
    }
    require(!range.has_values || own >= scale);
    dunlin__int8_scale_write(own, head);
    require(dunlin__int8_scale_read("t", head, &read, &error) == DUNLIN_OK);
    require(is_same(&own, &read, 1));
    dunlin__int8_encode(own, values, n, bytes);
    require(dunlin__int8_decode("t", own, bytes, n, again, &error) == DUNLIN_OK);
    require(is_same(values, again, n));
}

/* In pieces, as a server reads them. */
static dunlin_status decode(const uint8_t *data, size_t n, size_t piece, float scale,
                            float *out_values, dunlin_error *error)
{
    static int8_t bytes[256];
    for (size_t done = 0; done < n;) {
        const size_t part = n - done < piece ? n - done : piece;
        memcpy(bytes, data + done, part);
        const dunlin_status status =
            dunlin__int8_decode("t", scale, bytes, part, out_values + done, error);
        if (status != DUNLIN_OK) {
            return status;
        }
        done += part;
    }
    return DUNLIN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float values[MOST];
    dunlin_error error = {0};
    float scale = 0.0F;
    if (size < 1 + DUNLIN_INT8_SCALE_BYTES || size > MOST) {
        return 0;
    }
    const uint8_t *bytes = data + 1 + DUNLIN_INT8_SCALE_BYTES;
    const size_t n = size - 1 - DUNLIN_INT8_SCALE_BYTES;
    dunlin_status status = dunlin__int8_scale_read("t", data + 1, &scale, &error);
    if (status == DUNLIN_OK) {
        require(isfinite(scale) && scale > 0.0F);
        status = decode(bytes, n, (size_t)data[0] + 1, scale, values, &error);
        require((status != DUNLIN_OK) == (memchr(bytes, 0x80, n) != NULL));
    }
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    for (size_t i = 0; status == DUNLIN_OK && i < n; i++) {
        require(isfinite(values[i]) && fabsf(values[i]) <= 127.0F * scale);
    }
    if (status == DUNLIN_OK) {
        there_and_back(values, n, scale);
    }
    return 0;
}
