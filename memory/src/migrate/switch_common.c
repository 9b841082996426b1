/*
 * switch_common.c - functions that the files of a migration share: which parts of a step would run,
 * and the refusal of an allocation.
 */
#include "switch.h"

bool dunlin__switch_is_open(const dunlin_switch_search *search, const dunlin_plan_step *step)
{
    const uint64_t taken = search->from->n_taken[step->op];
    if ((step->parts & DUNLIN_MEM_FIXED) != 0) {
        return taken == 0;
    }
    return (step->parts & DUNLIN_MEM_REDUCE) != 0 && taken < search->from->n_batch;
}

uint8_t dunlin__switch_parts(const dunlin_switch_search *search, uint32_t k)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    if (dunlin__switch_is_open(search, step)) {
        return step->parts;
    }
    return search->entry->runs_map[k] != 0 ? DUNLIN_MEM_MAP : 0;
}

void dunlin__switch_refuse(dunlin_switch_search *search, uint32_t place)
{
    search->entry->marks[place] |= DUNLIN_SWITCH_REFUSED;
    search->is_changed = true;
}
