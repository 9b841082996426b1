/*
 * own_form.h - in which form the rows of a user's files become examples.
 */
#ifndef DUNLIN_DATA_OWN_FORM_H
#define DUNLIN_DATA_OWN_FORM_H

#include "data/common/data.h"

typedef struct dunlin_own_form {
    dunlin_dtype dtype; /* U8, F32, I32 */
    /* Of a row with the channels last: the elements are read in another order. 0: as they are. */
    int64_t height, width, transposed_channels;
    int32_t n_channels; /* that have a mean and a deviation each */
} dunlin_own_form;

/* From what is stored and what is asked for: fills in the set's shapes. MISMATCH names both. */
dunlin_status dunlin__own_form_find(dunlin_dataset *set, const dunlin_dataset_options *options,
                                    const dunlin_shape *stored, bool are_pixels,
                                    dunlin_own_form *out_form, dunlin_error *error);

/* Where element i of an example, as it is kept, stands in the row. */
static inline size_t dunlin__own_form_from(const dunlin_own_form *form, size_t i)
{
    if (form->transposed_channels == 0) {
        return i;
    }
    const size_t plane = (size_t)form->height * (size_t)form->width;
    return i % plane * (size_t)form->transposed_channels + i / plane;
}

#endif
