/*
 * scales.c - the scales of a training in integers, for the result: what each tensor's exponent is,
 * what moved it, and what did not fit.
 */
#include "object.h"
#include "train.h"

#include <dunlin/trainer_advanced.h>

static const char *const kind_names[] = {[DUNLIN_SCALE_PARAMETER] = "parameter",
                                         [DUNLIN_SCALE_VALUE] = "value",
                                         [DUNLIN_SCALE_ERROR] = "error",
                                         [DUNLIN_SCALE_ERROR_SUM] = "error_sum",
                                         [DUNLIN_SCALE_LOSS] = "loss"};

json_t *train_scales_array(const dunlin_trainer *trainer)
{
    const int32_t n = dunlin_trainer_n_scales(trainer);
    json_t *array = n > 0 ? json_array() : NULL;
    for (int32_t i = 0; i < n; i++) {
        dunlin_scale_info info = DUNLIN_SCALE_INFO_INIT;
        if (dunlin_trainer_scale(trainer, i, &info) != DUNLIN_OK || !info.is_known) {
            continue;
        }
        json_t *row = json_object();
        object_text(row, "name", info.name);
        object_text(row, "kind", kind_names[info.kind]);
        object_number(row, "exponent", info.exponent);
        object_number(row, "clipped", info.n_clipped);
        object_number(row, "raised", info.n_raised);
        object_number(row, "lowered", info.n_lowered);
        (void)json_array_append_new(array, row);
    }
    return array;
}
