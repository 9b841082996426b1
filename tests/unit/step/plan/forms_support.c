/*
 * forms_support.c - plans in one form of a graph or the other, and networks of residual sums.
 */
#include "forms_support.h"

#include "net/net.h"
#include "step/plan/budget.h"

#include <mem/hash.h>
#include <mem/store.h>

#include <criterion/criterion.h>

#include <stdio.h>

made test_plan_only(const dunlin_model *model, const dunlin_trainer_options *options, int form,
                    bool wants_least)
{
    made out = {.cost_ns = UINT64_MAX};
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_trainer *trainer = NULL;
    cr_assert_eq(dunlin__trainer_make(options, &trainer, &error), DUNLIN_OK);
    if (form != ANY_FORM) {
        trainer->form = (dunlin_step_form)form;
        trainer->is_form_fixed = true;
    }
    out.status = dunlin__trainer_plan(trainer, &model->net, &error);
    if (out.status == DUNLIN_OK) {
        const dunlin_plan *plan = trainer->train.plan;
        const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
        out.form = trainer->form;
        out.cost_ns = plan->cost_ns;
        out.total_bytes = trainer->counter.now_bytes + trainer->arena_bytes;
        out.graph = dunlin__graph_hash(graph, false);
        out.has_forms = out.form == DUNLIN_FORM_SUMS || trainer->train.step->reads_terms;
        out.is_plain = plan->cost_ns <= dunlin__graph_plain_ns(graph, plan->batch, plan->batch);
        out.is_kept = trainer->is_plan_kept;
        cr_expect_eq(trainer->aside_bytes, 0);
        cr_expect(options->budget_bytes == 0 || out.total_bytes <= options->budget_bytes);
        if (wants_least) {
            cr_assert_eq(dunlin__trainer_find_least(trainer, &error), DUNLIN_OK, "%s", error.text);
        }
        out.least_bytes = trainer->least_budget_bytes;
    } else {
        cr_assert_eq(out.status, DUNLIN_BUDGET, "%s", error.text);
        out.least_bytes = error.needed_bytes;
    }
    dunlin_trainer_destroy(trainer);
    return out;
}

made test_plan_in(const dunlin_model *model, const dunlin_trainer_options *options, int form)
{
    return test_plan_only(model, options, form, true);
}

dunlin_model *test_residual_model(int32_t n_blocks, int32_t channels, int32_t size)
{
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, size, size}};
    const dunlin_conv_options padded = {.struct_size = sizeof(dunlin_conv_options), .padding = 1};
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    char name[32];
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &shape);
    dunlin_value before = end;
    for (int32_t i = 0; i <= 2 * n_blocks; i++) {
        (void)snprintf(name, sizeof name, "conv%d", (int)i);
        end = dunlin_builder_conv(builder, name, end, channels, 3, &padded);
        name[0] = 'n';
        end = dunlin_builder_batch_norm(builder, name, end);
        if (i > 0 && i % 2 == 0) {
            end = dunlin_builder_add(builder, before, end);
        }
        end = dunlin_builder_relu(builder, end);
        before = i % 2 == 0 ? end : before;
    }
    end = dunlin_builder_global_average_pool(builder, end);
    end = dunlin_builder_flatten(builder, end);
    end = dunlin_builder_dense(builder, "head", end, 4);
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    return model;
}
