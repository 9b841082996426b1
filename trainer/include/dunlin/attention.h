/*
 * attention.h - more layers of transformers: attention that looks back only, shares heads of keys
 * and values, adds constant masks, turns queries and keys by their place; RMSNorm; images as
 * tokens.
 *
 * Example: a decoder's layer over 16 tokens of 32 numbers, 4 heads of which 2 share keys.
 *
 * @code
 * const dunlin_shape input = {.n_dims = 2, .dims = {16, 32}};
 * dunlin_error error = {0};
 * dunlin_builder *builder = NULL;
 * dunlin_model *model = NULL;
 * if (dunlin_builder_create(NULL, &builder) != DUNLIN_OK) {
 *     return 1;
 * }
 * dunlin_attention_options back = DUNLIN_ATTENTION_OPTIONS_INIT;
 * back.is_causal = true;
 * back.kv_heads = 2;
 * dunlin_value x = dunlin_builder_input(builder, "tokens", &input);
 * x = dunlin_builder_dense(builder, "qkv", x, 32 + 2 * 16);
 * x = dunlin_builder_attention_with(builder, NULL, &x, 1, 4, &back);
 * x = dunlin_builder_dense(builder, "out", x, 32);
 * if (dunlin_builder_finish(builder, x, &model, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_ATTENTION_H
#define DUNLIN_ATTENTION_H

#include <dunlin/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Zero means: nothing of it. */
typedef struct dunlin_attention_options {
    size_t struct_size;
    /** A query sees the keys up to its own place and none behind it; as many keys as queries. What
     * is not seen is hardly computed, and no mask is stored. */
    bool is_causal;
    /** `mask` is a value that is added to the scores, as dunlin_builder_attention() says. */
    bool has_mask;
    dunlin_value mask;
    /** Heads of k and v, each shared by heads / kv_heads of q (grouped queries, Ainslie et al.
     * 2023); 0: as many as heads. */
    int32_t kv_heads;
    /** Scores are multiplied by it; 0: 1 / sqrt(width of a head). */
    float scale;
    /** Numbers that are added to the scores of every example and never trained, finite: (keys),
     * (queries, keys) or (heads, queries, keys), copied. NULL: none. */
    const float *fixed_mask;
    dunlin_shape fixed_mask_shape;
    /** Rotary positions (Su et al. 2021): of pair i of a head's halves the angle at token t is t x
     * rotary_base^(-2 i / width), 10000 as a rule; as many keys as queries, heads of an even width.
     * 0: none. Makes "name.cos" and "name.sin", which are never trained. */
    float rotary_base;
} dunlin_attention_options;
#define DUNLIN_ATTENTION_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_attention_options)

/**
 * Attention of `heads` heads. `qkv`: one value (tokens, (heads + 2 x kv_heads) x width), q, k and v
 * side by side (`n_qkv` 1); or q of (tokens, heads x width), k and v of (keys, kv_heads x width)
 * (`n_qkv` 3). `name` is that of the numbers of `fixed_mask` ("name.mask") and of the positions,
 * and may be NULL without them. `options` may be NULL.
 *
 * @return its value, (tokens, heads x width); negative after an error.
 */
DUNLIN_API dunlin_value dunlin_builder_attention_with(dunlin_builder *builder, const char *name,
                                                      const dunlin_value *qkv, int32_t n_qkv,
                                                      int32_t heads,
                                                      const dunlin_attention_options *options);

/** A mask for attention from tokens: 0, and -1e9 where a token is `padding`. `tokens`: (tokens),
 * whole numbers, the network's input or a part of it. As options.mask it hides keys that are
 * padding.
 *
 * @return its value, (tokens); negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_padding_mask(dunlin_builder *builder, dunlin_value tokens,
                                                    int32_t padding);

/** The pixels of an image (C, H, W) as tokens, (H x W, C), row by row; of a signal (C, L) its
 * samples, (L, C). Nothing is moved: they lie so. After a convolution whose stride is its kernel,
 * tokens are patches.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_image_tokens(dunlin_builder *builder, dunlin_value input);

/** One token more before the others, (tokens, features) to (1 + tokens, features): a parameter
 * called `name` alone, (1, 1, features), the same for all examples, as vision transformers read
 * their class from.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_class_token(dunlin_builder *builder, const char *name,
                                                   dunlin_value input);

/** RMSNorm (Zhang and Sennrich 2019) over the last dimension: x / sqrt(mean of x^2 + eps) times a
 * scale, "name.weight", ones at first. `eps` 0: 1e-5. @return its value; negative after an error.
 */
DUNLIN_API dunlin_value dunlin_builder_rms_norm(dunlin_builder *builder, const char *name,
                                                dunlin_value input, float eps);

#ifdef __cplusplus
}
#endif

#endif
