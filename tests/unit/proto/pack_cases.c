/*
 * pack_cases.c - the packings that tests and the bench go through.
 */
#include "pack_cases.h"

#include "random.h"

#include <math.h>

typedef struct kind {
    const char *name;
    dunlin__packing packing;
} kind;

#define V(name) DUNLIN_V1_VALUES_##name
#define S(name) DUNLIN_V1_SELECTION_##name

static const kind kinds[] = {
    {"f16", {.values = V(F16), .block_values = 8192}},
    {"bf16", {.values = V(BF16), .block_values = 256}},
    {"f16+rotate", {.values = V(F16), .block_values = 8192, .is_rotated = true}},
    {"int8", {.values = V(LEVELS), .bits = 8, .block_values = 1024}},
    {"int8+code", {.values = V(LEVELS), .bits = 8, .block_values = 8192, .is_entropy_coded = true}},
    {"int8+rotate", {.values = V(LEVELS), .bits = 8, .block_values = 8192, .is_rotated = true}},
    {"int4", {.values = V(LEVELS), .bits = 4, .block_values = 256}},
    {"int4+rotate", {.values = V(LEVELS), .bits = 4, .block_values = 8192, .is_rotated = true}},
    {"int4+rotate+code",
     {.values = V(LEVELS),
      .bits = 4,
      .block_values = 8192,
      .is_rotated = true,
      .is_entropy_coded = true}},
    {"int3+rotate+code",
     {.values = V(LEVELS),
      .bits = 3,
      .block_values = 8192,
      .is_rotated = true,
      .is_entropy_coded = true}},
    {"int2+rotate+code",
     {.values = V(LEVELS),
      .bits = 2,
      .block_values = 8192,
      .is_rotated = true,
      .is_entropy_coded = true}},
    {"sign+rotate", {.values = V(SIGN), .block_values = 8192, .is_rotated = true}},
    {"top 1% f32",
     {.values = V(F32), .selection = S(LARGEST), .kept_ppm = 10000, .block_values = 1024}},
    {"top 1% f16",
     {.values = V(F16), .selection = S(LARGEST), .kept_ppm = 10000, .block_values = 1024}},
    {"top 5% int8",
     {.values = V(LEVELS),
      .bits = 8,
      .selection = S(LARGEST),
      .kept_ppm = 50000,
      .block_values = 1024}},
    {"top 1% int4+code",
     {.values = V(LEVELS),
      .bits = 4,
      .selection = S(LARGEST),
      .kept_ppm = 10000,
      .block_values = 1024,
      .is_entropy_coded = true}},
    {"top 1% sign",
     {.values = V(SIGN), .selection = S(LARGEST), .kept_ppm = 10000, .block_values = 256}},
    {"random 10% f32",
     {.values = V(F32), .selection = S(RANDOM), .kept_ppm = 100000, .block_values = 1024}},
    {"random 10% bf16",
     {.values = V(BF16), .selection = S(RANDOM), .kept_ppm = 100000, .block_values = 64}},
    {"random 5% int8+code",
     {.values = V(LEVELS),
      .bits = 8,
      .selection = S(RANDOM),
      .kept_ppm = 50000,
      .block_values = 1024,
      .is_entropy_coded = true}},
};

size_t pack_n_kinds(void)
{
    return sizeof(kinds) / sizeof(kinds[0]);
}

const char *pack_kind_name(size_t index)
{
    return kinds[index].name;
}

dunlin__packing pack_kind(size_t index)
{
    dunlin__packing packing = kinds[index].packing;
    packing.version = 1;
    packing.round = 7;
    if (packing.is_rotated || packing.selection == S(RANDOM)) {
        packing.seed.size = DUNLIN_PACK_SEED_BYTES;
        for (size_t i = 0; i < DUNLIN_PACK_SEED_BYTES; i++) {
            packing.seed.bytes[i] = (uint8_t)(i + 1);
        }
    }
    return packing;
}

double pack_normal(uint64_t *state)
{
    double u = test_random_range(1e-12, 1.0, state);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * test_random_range(0.0, 1.0, state));
}
