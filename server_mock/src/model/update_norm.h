/*
 * update_norm.h - the norms of an update that lies in one file, or of some that are in memory.
 */
#ifndef DUNLIN_SERVER_UPDATE_NORM_H
#define DUNLIN_SERVER_UPDATE_NORM_H

#include "models.h"

typedef struct dunlin__update_norms {
    double norm;       /* L2, of all tensors of the part together */
    double layer_norm; /* and the largest of a single one, which is... */
    uint32_t layer;    /* ...this tensor of the model */
    uint32_t n_layers;
} dunlin__update_norms;

/*
 * The L2 norms of an update over the tensors of a part: SHARED ones, or AVERAGED ones. The file has
 * the values of all shared tensors in the model's order. Where whole weights are sent they are
 * those of the difference from `base_path`, a whole model; else `base_path` is NULL. Not locked.
 */
DUNLIN_NODISCARD dunlin_status
dunlin__update_measure(const dunlin__layout *layout, dunlin__layout_part part,
                       const char *update_path, const char *base_path, const dunlin_alloc *alloc,
                       dunlin__update_norms *out, dunlin_error *error);

/* The same to the bit of n updates in memory, with `base` (NULL as above) there too. */
void dunlin__update_measure_values(const dunlin__layout *layout, dunlin__layout_part part,
                                   const float *const *updates, size_t n, const float *base,
                                   dunlin__update_norms *out);

#endif
