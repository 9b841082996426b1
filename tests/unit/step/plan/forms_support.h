/*
 * forms_support.h - the plan of a trainer in one form of its graph, and networks of residual sums.
 */
#ifndef DUNLIN_TESTS_FORMS_SUPPORT_H
#define DUNLIN_TESTS_FORMS_SUPPORT_H

#include "step/plan/forms.h"

#include <dunlin/trainer.h>

#define ANY_FORM (-1)

/* The plan of a trainer that is planned and not run. */
typedef struct made {
    dunlin_status status;
    dunlin_step_form form;
    uint64_t cost_ns;
    uint64_t least_bytes;
    uint64_t total_bytes;
    uint64_t graph; /* hash of it */
    bool has_forms;
    bool is_plain; /* nothing is recomputed, the batch is whole */
    bool is_kept;
} made;

/* `form`: the only one that may be taken, or ANY_FORM. */
made test_plan_only(const dunlin_model *model, const dunlin_trainer_options *options, int form,
                    bool wants_least);
made test_plan_in(const dunlin_model *model, const dunlin_trainer_options *options, int form);

/* Convolutions with batch norm and `n_blocks` residual sums, each clipped. */
dunlin_model *test_residual_model(int32_t n_blocks, int32_t channels, int32_t size);

#endif
