/*
 * baselines.c - the library of published policies: what a trainer's options point to.
 */
#include "baselines.h"

#include <mem/baselines.h>

const dunlin_baselines *dunlin_baselines_published(void)
{
    static const dunlin_baselines published = {.plan_fn = dunlin__try_policy,
                                               .add_swaps_fn = dunlin__step_add_swaps,
                                               .new_swap_fn = dunlin__swap_new};
    return &published;
}
