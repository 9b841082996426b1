/*
 * hash.c - one number from all that a graph holds.
 *
 * Invariant: every field that a plan depends on goes in, each list after its length, so that two
 * graphs with the same numbers in other places differ. Source of the mixing: SplitMix64's finaliser
 * (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
 */
#include <mem/hash.h>

uint64_t dunlin__hash_add(uint64_t hash, uint64_t number)
{
    uint64_t x = hash * UINT64_C(0x9e3779b97f4a7c15) ^ number;
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t add_text(uint64_t hash, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        hash = dunlin__hash_add(hash, (unsigned char)*text);
    }
    return dunlin__hash_add(hash, 0);
}

static uint64_t add_tensor(uint64_t hash, const dunlin_mem_tensor *tensor, bool with_costs)
{
    /* Costs of one batch serve for others. */
    const bool leaves_bytes = tensor->follows_batch && !with_costs;
    const uint64_t fields[] = {
        tensor->sample_bytes,
        leaves_bytes ? 0 : tensor->fixed_bytes,
        (uint64_t)tensor->mem_class,
        (tensor->is_persistent ? 1U : 0U) | (tensor->is_per_slice ? 2U : 0U) |
            (tensor->is_pinned ? 4U : 0U) | (tensor->follows_batch ? 8U : 0U),
        tensor->parent,
        tensor->parent_offset};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        hash = dunlin__hash_add(hash, fields[i]);
    }
    return hash;
}

static uint64_t add_variant(uint64_t hash, const dunlin_mem_variant *variant, bool with_costs)
{
    hash = add_text(hash, variant->name);
    const uint64_t fields[] = {variant->workspace_fixed_bytes,
                               variant->workspace_sample_bytes,
                               with_costs ? variant->cost_fixed_ns : 0,
                               with_costs ? variant->cost_sample_ns : 0,
                               with_costs ? variant->reduce_permille : 0U,
                               (uint64_t)(int64_t)variant->in_place_write,
                               (uint64_t)(int64_t)variant->in_place_read,
                               variant->n_accesses};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        hash = dunlin__hash_add(hash, fields[i]);
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        hash = dunlin__hash_add(hash, (uint64_t)access->tensor << 16 | (uint64_t)access->mode << 8 |
                                          access->parts);
    }
    return hash;
}

uint64_t dunlin__graph_hash(const dunlin_mem_graph *graph, bool with_costs)
{
    uint64_t hash = dunlin__hash_add(with_costs ? 1 : 0, graph->n_tensors);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        hash = add_tensor(hash, &graph->tensors[t], with_costs);
    }
    hash = dunlin__hash_add(hash, graph->n_ops);
    /* What may be swapped changes plans, but no op of the step and none of their costs. */
    const uint32_t n_ops = with_costs ? dunlin__mem_n_all_ops(graph) : graph->n_ops;
    for (uint32_t i = 0; i < n_ops; i++) {
        const dunlin_mem_op *op = &graph->ops[i];
        hash = dunlin__hash_add(hash, (uint64_t)op->parts << 2 | (op->may_recompute ? 2U : 0U) |
                                          (op->is_backward ? 1U : 0U));
        hash = dunlin__hash_add(hash, op->n_variants);
        for (uint32_t v = 0; v < op->n_variants; v++) {
            hash = add_variant(hash, &op->variants[v], with_costs);
        }
    }
    return hash;
}
