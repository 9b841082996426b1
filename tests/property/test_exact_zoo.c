/*
 * test_exact_zoo.c - every ready-made network at a small image: whatever the policy and the limit,
 * three steps give the same weights, to the bit.
 *
 * Each network meets policy auto and every fourth of the others, from one further on from network
 * to network, so that each policy meets two networks at least; DUNLIN_ZOO=full: all of them.
 */
#include "exact.h"
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define TOKENS 16
#define VOCABULARY 200

#define EVERY 4

/* The policy is drawn for the network with this number. */
static bool is_drawn(int network, int policy)
{
    const char *asked = getenv("DUNLIN_ZOO"); /* NOLINT(concurrency-mt-unsafe) */
    return (asked != NULL && strcmp(asked, "full") == 0) ||
           exact_policies[policy].policy == DUNLIN_POLICY_AUTO || (policy + network) % EVERY == 0;
}

/* Enough to see regions in slices of one, two and three samples in; each costs minutes. */
static const char *const sliced_nets[] = {"mobilenet_v2", "resnet50", "densenet121", NULL};

static bool is_named(const char *name, const char *const *list)
{
    while (*list != NULL && strcmp(*list, name) != 0) {
        list++;
    }
    return *list != NULL;
}

/* `ghost_slice`: samples of a slice whose statistics batch norm takes; 0: the batch's. */
static void check_with(int network, const char *name, int32_t image, int64_t batch,
                       bool has_batch_norm, bool is_large, int64_t ghost_slice)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options),
                                      .image = image,
                                      .classes = 10,
                                      .sequence = image == 0 ? TOKENS : 0,
                                      .vocabulary = image == 0 ? VOCABULARY : 0};
    dunlin_model *model = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    exact_counts counts = {.n_runs = 0};
    exact_case at = {.model = model,
                     .options = test_options(batch),
                     .name = name,
                     .rng = 11,
                     .may_slice = !has_batch_norm,
                     .counts = &counts};
    at.options.lr = 1e-3F;
    at.options.ghost_statistics = ghost_slice > 0;
    at.options.micro_batch = ghost_slice;
    exact_open(&at);
    bool may_swap = false;
    for (int i = 0; i < exact_n_policies; i++) {
        if (!is_drawn(network, i)) {
            continue;
        }
        may_swap = may_swap || exact_policies[i].policy >= DUNLIN_POLICY_VDNN;
        const bool is_auto = exact_policies[i].policy == DUNLIN_POLICY_AUTO;
        exact_check_policy(&at, &exact_policies[i], is_auto || !is_large, !is_large);
    }
    exact_check_budgets(&at);
    if (ghost_slice == 0 && is_named(name, sliced_nets)) {
        exact_check_slices(&at);
    }
    exact_close(&at);
    cr_log_info(
        "%s: %d runs, %d of them recompute, %d in slices, %d both; unfused ones are up to %g "
        "away",
        name, counts.n_runs, counts.n_recompute_ops, counts.n_sliced, counts.n_both,
        counts.max_error);
    cr_expect_gt(counts.n_recompute_ops + counts.n_both, 0, "%s: nothing was recomputed", name);
    cr_expect(ghost_slice > 0 || !may_swap || counts.n_swapped > 0, "%s: nothing was swapped",
              name);
    dunlin_model_destroy(model);
}

static void check(int network, const char *name, int32_t image, int64_t batch, bool has_batch_norm,
                  bool is_large)
{
    check_with(network, name, image, batch, has_batch_norm, is_large, 0);
}

Test(exact_zoo, lenet5, .timeout = 1800)
{
    check(0, "lenet5", 28, 8, false, false);
}

Test(exact_zoo, mobilenet_v1, .timeout = 1800)
{
    check(1, "mobilenet_v1", 48, 6, true, false);
}

Test(exact_zoo, mobilenet_v2, .timeout = 1800)
{
    check(2, "mobilenet_v2", 64, 8, true, false);
}

Test(exact_zoo, squeezenet1_1, .timeout = 1800)
{
    check(3, "squeezenet1_1", 64, 8, false, false);
}

Test(exact_zoo, resnet18, .timeout = 1800)
{
    check(4, "resnet18", 48, 4, true, true);
}

Test(exact_zoo, resnet50, .timeout = 1800)
{
    check(5, "resnet50", 48, 4, true, true);
}

Test(exact_zoo, densenet121, .timeout = 1800)
{
    check(6, "densenet121", 32, 4, true, false);
}

Test(exact_zoo, vgg16, .timeout = 1800)
{
#if UINTPTR_MAX == UINT32_MAX
    cr_skip_test("an address space of 32 bits does not hold two arenas of 1.6 GB");
#endif
    check(7, "vgg16", 32, 4, false, true);
}

Test(exact_zoo, bert_small, .timeout = 1800)
{
    check(8, "bert_small", 0, 4, false, true);
}

Test(exact_zoo, vit_tiny_patch4, .timeout = 1800)
{
    check(11, "vit_tiny_patch4", 16, 4, false, true);
}

Test(exact_zoo, bert_tiny, .timeout = 1800)
{
    check(12, "bert_tiny", 0, 4, false, true);
}

Test(exact_zoo, mobilenet_v2_with_ghosts, .timeout = 1800)
{
    check_with(9, "mobilenet_v2", 64, 8, true, true, 3);
}

Test(exact_zoo, densenet121_with_ghosts, .timeout = 1800)
{
    check_with(10, "densenet121", 32, 8, true, true, 4);
}
