/* random_tokens.c - random networks over tokens or rows of features (random_draft.h). */
#include "random_draft.h"
#include "random_parts.h"

#include <dunlin/attention.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

dunlin_model *random_finish(dunlin_builder *builder, const dunlin_value *ends, int32_t n)
{
    dunlin_model *model = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_builder_finish_outputs(builder, ends, NULL, n, &model, &error), DUNLIN_OK,
                 "%s", error.text);
    return model;
}

/* Half of an encoder layer: x + f(x), normalised. */
static void end_half(draft *d, dunlin_value before, int32_t width)
{
    d->end = dunlin_builder_dense(d->builder, random_name(d, "fc"), d->end, width);
    d->end = dunlin_builder_add(d->builder, before, d->end);
    d->end = between(d->rng, 0, 2) == 0
                 ? dunlin_builder_rms_norm(d->builder, random_name(d, "norm"), d->end, 0.0F)
                 : dunlin_builder_layer_norm(d->builder, random_name(d, "norm"), d->end);
}

/* q, k and v in one; looks back, shares keys and adds a mask or not; hides the keys of id 0 or not,
 * where there are ids. */
static void add_attention(draft *d, dunlin_value ids, int32_t heads, int32_t width,
                          int32_t n_tokens)
{
    enum { MOST = 6 };
    float mask[MOST * MOST];
    dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
    options.is_causal = between(d->rng, 0, 1) == 0;
    options.kv_heads = between(d->rng, 0, 1);
    if (n_tokens <= MOST && between(d->rng, 0, 2) == 0) {
        for (int32_t i = 0; i < n_tokens * n_tokens; i++) {
            mask[i] = 0.125F * (float)between(d->rng, -8, 8);
        }
        options.fixed_mask = mask;
        options.fixed_mask_shape = (dunlin_shape){2, {n_tokens, n_tokens}};
    }
    if (ids >= 0 && between(d->rng, 0, 2) == 0) {
        options.has_mask = true;
        options.mask = dunlin_builder_padding_mask(d->builder, ids, 0);
    }
    options.rotary_base = width % 2 == 0 && between(d->rng, 0, 1) == 0 ? 100.0F : 0.0F;
    const int32_t kv_heads = options.kv_heads == 0 ? heads : options.kv_heads;
    d->end = dunlin_builder_dense(d->builder, random_name(d, "qkv"), d->end,
                                  (heads + 2 * kv_heads) * width);
    d->end = dunlin_builder_attention_with(d->builder, random_name(d, "attention"), &d->end, 1,
                                           heads, &options);
}

dunlin_model *random_token_model(uint64_t *rng, bool has_second)
{
    draft d = {.rng = rng};
    cr_assert_eq(dunlin_builder_create(NULL, &d.builder), DUNLIN_OK);
    const int32_t n_tokens = between(rng, 2, 6);
    const int32_t heads = between(rng, 1, 3);
    const int32_t width = heads * between(rng, 1, 4);
    const bool has_table = between(rng, 0, 2) > 0;
    const dunlin_shape input = {1, {has_table ? n_tokens : 3}};
    const dunlin_shape tokens = {2, {n_tokens, width}};
    d.end = dunlin_builder_input(d.builder, "x", &input);
    const dunlin_value ids = has_table ? d.end : -1;
    if (has_table) {
        d.end = dunlin_builder_embedding(d.builder, "table", d.end,
                                         INT64_C(1) << between(rng, 1, 7), width);
    } else {
        d.end = dunlin_builder_dense(d.builder, "spread", d.end, n_tokens * width);
        d.end = dunlin_builder_reshape(d.builder, d.end, &tokens);
    }
    d.end = dunlin_builder_add_parameter(d.builder, "positions", d.end, &tokens);
    if (between(rng, 0, 2) == 0) {
        d.end = random_rows(d.builder, "rows", d.end, n_tokens, width);
    }
    const int32_t n_layers = between(rng, 1, 3);
    dunlin_value first = d.end;
    for (int32_t i = 0; i < n_layers; i++) {
        const dunlin_value before = d.end;
        if (between(rng, 0, 1) == 0) {
            add_attention(&d, ids, heads, width / heads, n_tokens);
        } else { /* the same by hand, one head */
            const int32_t order[2] = {1, 0};
            const dunlin_value q =
                dunlin_builder_dense(d.builder, random_name(&d, "q"), before, width);
            dunlin_value k = dunlin_builder_dense(d.builder, random_name(&d, "k"), before, width);
            k = dunlin_builder_transpose(d.builder, k, order);
            k = dunlin_builder_softmax(d.builder, dunlin_builder_matmul(d.builder, q, k));
            d.end = dunlin_builder_matmul(d.builder, k, before);
        }
        end_half(&d, before, width);
        const dunlin_value middle = d.end;
        d.end = dunlin_builder_dense(d.builder, random_name(&d, "fc"), d.end, 2 * width);
        if (between(rng, 0, 1) == 0) {
            d.end = dunlin_builder_gelu(d.builder, d.end);
        } else {
            random_function(&d, 2 * width);
        }
        d.end = dunlin_builder_multiply(d.builder, d.end, d.end);
        end_half(&d, middle, width);
        first = i == 0 ? d.end : first;
    }
    if (between(rng, 0, 1) == 0) {
        d.end = dunlin_builder_mean(d.builder, d.end, 0);
    } else {
        d.end = dunlin_builder_slice(d.builder, d.end, 0, 0, 1);
        d.end = dunlin_builder_flatten(d.builder, d.end);
        d.end = dunlin_builder_erf(d.builder, dunlin_builder_tanh(d.builder, d.end));
    }
    const int32_t n_classes = between(rng, 2, 5);
    dunlin_value ends[2] = {
        dunlin_builder_dense(d.builder, random_name(&d, "fc"), d.end, n_classes)};
    if (has_second) {
        first = dunlin_builder_mean(d.builder, first, 0);
        ends[1] = dunlin_builder_dense(d.builder, random_name(&d, "fc"), first, n_classes);
    }
    return random_finish(d.builder, ends, has_second ? 2 : 1);
}
