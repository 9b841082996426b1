/*
 * builtin_place.c - the progress in a task as a property of the trainer's checkpoint: nine numbers
 * of 16 hex digits. Older checkpoints have eight: each example that they count has weight 1.
 *
 * Invariant: what was saved is read back to the bit, the sums in double too.
 */
#include "builtin_place.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROPERTY "dunlin.place"
#define N_NUMBERS 9
#define N_OLDER 8
#define N_COUNTS 5 /* the first of them: not negative */
#define HEX_CHARS 16

static uint64_t bits_of(double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(uint64_t bits)
{
    double value = 0.0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

dunlin_status dunlin__place_save(dunlin_trainer *trainer, const char *path,
                                 const dunlin__builtin_place *place)
{
    const uint64_t numbers[N_NUMBERS] = {(uint64_t)place->epoch,      (uint64_t)place->position,
                                         (uint64_t)place->n_examples, (uint64_t)place->n_counted,
                                         (uint64_t)place->n_steps,    bits_of(place->loss_sum),
                                         bits_of(place->right_sum),   place->seed,
                                         bits_of(place->weight_sum)};
    char text[N_NUMBERS * HEX_CHARS + 1];
    for (size_t i = 0; i < N_NUMBERS; i++) {
        (void)snprintf(text + i * HEX_CHARS, HEX_CHARS + 1, "%016llx",
                       (unsigned long long)numbers[i]);
    }
    DUNLIN_TRY(dunlin_trainer_set_property(trainer, PROPERTY, text));
    return dunlin_trainer_save_checkpoint(trainer, path);
}

static bool read_numbers(const char *text, uint64_t out_numbers[N_NUMBERS])
{
    const size_t n = text == NULL ? 0 : strlen(text) / HEX_CHARS;
    if (n < N_OLDER || n > N_NUMBERS || strlen(text) != n * HEX_CHARS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char digits[HEX_CHARS + 1] = "";
        char *end = NULL;
        memcpy(digits, text + i * HEX_CHARS, HEX_CHARS);
        out_numbers[i] = strtoull(digits, &end, 16);
        if (end != digits + HEX_CHARS || (i < N_COUNTS && out_numbers[i] > INT64_MAX)) {
            return false;
        }
    }
    if (n == N_OLDER) {
        out_numbers[N_OLDER] = bits_of((double)out_numbers[3]);
    }
    return true;
}

dunlin_status dunlin__place_restore(dunlin_trainer *trainer, const char *path,
                                    dunlin__builtin_place *out_place, bool *out_has_place)
{
    uint64_t numbers[N_NUMBERS] = {0};
    *out_has_place = false;
    DUNLIN_TRY(dunlin_trainer_load_checkpoint(trainer, path));
    *out_has_place = read_numbers(dunlin_trainer_property(trainer, PROPERTY), numbers);
    *out_place = (dunlin__builtin_place){.epoch = (int64_t)numbers[0],
                                         .position = (int64_t)numbers[1],
                                         .n_examples = (int64_t)numbers[2],
                                         .n_counted = (int64_t)numbers[3],
                                         .n_steps = (int64_t)numbers[4],
                                         .loss_sum = value_of(numbers[5]),
                                         .right_sum = value_of(numbers[6]),
                                         .seed = numbers[7],
                                         .weight_sum = value_of(numbers[8])};
    return DUNLIN_OK;
}
