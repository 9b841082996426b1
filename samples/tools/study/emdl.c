/*
 * emdl.c - the named study of the first measurements of on-device training (EMDL 2020): its parts,
 * and its figures beside ours.
 *
 * The paper's numbers: a step of a network of MobileNetV2's class in milliseconds at batch 1, 2 and
 * 4, on a Note 10 with MNN 516, 812, 1365 and DL4J 3032, 6129, out of memory; on a Raspberry Pi 3B+
 * (1 GB) with MNN 6698, 10651, out of memory, TensorFlow 10468, 14157, 27574, PyTorch 48274, 79097,
 * out of memory; up to 17.8 times an inference; 16 to 32 as the largest batch on 6 to 8 GB.
 */
#include "named.h"

#include <math.h>
#include <string.h>

#define NAME "emdl"
#define TEXT_BYTES 512
#define TABLE "table of step times"
#define NETWORK "mobilenet_v2"
#define FULL_IMAGE 224.0  /* pixels: the paper's */
#define PYTORCH "pytorch" /* in place of a policy */
#define FLOPS 3.0         /* a step's operations over a forward pass's */
#define MIB 1048576.0
#define BOARD_MIB 1024.0 /* of the Raspberry Pi 3B+ */
#define NO_NUMBER ((double)NAN)

static bool is_at(const json_t *row, const char *column, double value)
{
    return !(fabs(claim_number(row, column) - value) > 0.0) && isfinite(claim_number(row, column));
}

static bool is_first_policy(const json_t *rows, size_t at)
{
    const json_t *first = json_array_get(rows, at);
    for (size_t i = 0; i < at; i++) {
        const json_t *row = json_array_get(rows, i);
        if (claim_is(row, "model", claim_text(first, "model")) &&
            is_at(row, "batch", claim_number(first, "batch"))) {
            return false;
        }
    }
    return true;
}

/* Rows of a policy; PyTorch's figures stand in the rows of every policy and count once. */
static bool is_of(const json_t *rows, size_t at, const char *policy)
{
    return strcmp(policy, PYTORCH) == 0 ? is_first_policy(rows, at)
                                        : claim_is(json_array_get(rows, at), "policy", policy);
}

static void name_case(const json_t *row, char out[CLAIM_NAME_BYTES])
{
    (void)snprintf(out, CLAIM_NAME_BYTES, "%s, batch %.0f", claim_text(row, "model"),
                   claim_number(row, "batch"));
}

static void tell_differs(const named_tables *of, const json_t *rows, const char *more,
                         char out[TEXT_BYTES])
{
    (void)snprintf(out, TEXT_BYTES, "%lld thread(s) of this machine, not a phone; images of ",
                   (long long)of->flags->n_threads);
    claim_list(rows, "image", out, TEXT_BYTES);
    (void)strncat(out, " pixels", TEXT_BYTES - strlen(out) - 1);
    (void)strncat(out, more, TEXT_BYTES - strlen(out) - 1);
}

/* A step's or a forward pass's time, of the processor. `which`: "", "low_" or "high_". */
static double time_of(const json_t *row, const char *policy, const char *what, const char *which)
{
    const bool is_torch = strcmp(policy, PYTORCH) == 0;
    const bool is_step = strcmp(what, "step") == 0;
    char column[48];
    (void)snprintf(column, sizeof column, "%s%s_%sms", is_torch ? "torch_" : "time_",
                   !is_torch && is_step ? "cpu" : what, which);
    return claim_number(row, column);
}

/* --- a step beside an inference --- */

static void add_ratios(const json_t *rows, const char *policy, claim_sum *planned,
                       claim_sum *measured)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        char name[CLAIM_NAME_BYTES];
        if (!is_of(rows, i, policy)) {
            continue;
        }
        name_case(row, name);
        if (strcmp(policy, PYTORCH) != 0) {
            claim_add(planned, claim_number(row, "predicted_ratio"), NO_NUMBER, NO_NUMBER, name);
        }
        claim_add(measured, time_of(row, policy, "step", "") / time_of(row, policy, "forward", ""),
                  time_of(row, policy, "step", "low_") / time_of(row, policy, "forward", "high_"),
                  time_of(row, policy, "step", "high_") / time_of(row, policy, "forward", "low_"),
                  name);
    }
}

static void add_ratio_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        const char *policy;
    } all[] = {
        {{"a step takes up to 17.8 times an inference: Dunlin with no memory shared", "abstract",
          "measure", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 17.8, FLOPS},
         "none"},
        {{"a step takes up to 17.8 times an inference: Dunlin as it is", "abstract", "measure", "x",
          CLAIM_AT_LEAST, CLAIM_EXTREME, 17.8, FLOPS},
         "auto"},
        {{"a step takes up to 17.8 times an inference: PyTorch on this machine", "abstract",
          "measure", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 17.8, FLOPS},
         PYTORCH},
        {{"a step takes more than its operations, 3 times an inference: Dunlin as it is",
          "abstract", "measure", "x", CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, FLOPS},
         "auto"},
        {{"a step takes more than its operations, 3 times an inference: PyTorch", "abstract",
          "measure", "x", CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, FLOPS},
         PYTORCH},
    };
    const json_t *rows = named_rows(of, "measure", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        add_ratios(rows, all[i].policy, &planned, &measured);
        tell_differs(of, rows,
                     "; inference without what training saves, batch norm folded or not "
                     "as each program does it",
                     differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

/* --- step times by batch --- */

/* The row of MobileNetV2 at a batch; NULL: none. */
static const json_t *find(const json_t *rows, const char *policy, double batch)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_of(rows, i, policy) && claim_is(row, "model", NETWORK) &&
            is_at(row, "batch", batch)) {
            return row;
        }
    }
    return NULL;
}

static void add_growth_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        const char *policy;
        double batch;
    } all[] = {
        {{"step at batch 2 over batch 1, MobileNetV2 (812 of 516 ms): no memory shared", TABLE,
          "measure", "x", CLAIM_ABOUT, CLAIM_MEAN, 812.0 / 516.0, 2.0},
         "none",
         2.0},
        {{"step at batch 4 over batch 1, MobileNetV2 (1365 of 516 ms): no memory shared", TABLE,
          "measure", "x", CLAIM_ABOUT, CLAIM_MEAN, 1365.0 / 516.0, 4.0},
         "none",
         4.0},
        {{"step at batch 2 over batch 1, MobileNetV2 (79097 of 48274 ms): PyTorch", TABLE,
          "measure", "x", CLAIM_ABOUT, CLAIM_MEAN, 79097.0 / 48274.0, 2.0},
         PYTORCH,
         2.0},
    };
    const json_t *rows = named_rows(of, "measure", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const json_t *one = find(rows, all[i].policy, 1.0);
        const json_t *more = find(rows, all[i].policy, all[i].batch);
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        if (one != NULL && more != NULL) {
            const char *policy = all[i].policy;
            if (strcmp(policy, PYTORCH) != 0) {
                claim_add(&planned,
                          claim_number(more, "predicted_ms") / claim_number(one, "predicted_ms"),
                          NO_NUMBER, NO_NUMBER, NETWORK);
            }
            claim_add(&measured,
                      time_of(more, policy, "step", "") / time_of(one, policy, "step", ""),
                      time_of(more, policy, "step", "low_") / time_of(one, policy, "step", "high_"),
                      time_of(more, policy, "step", "high_") / time_of(one, policy, "step", "low_"),
                      NETWORK);
        }
        tell_differs(of, rows, "", differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

/* Milliseconds are compared at the paper's size of images alone. "In part": as fast as the same
 * framework was on the Raspberry Pi. */
static void add_step_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        double batch;
    } all[] = {
        {{"step of MobileNetV2 at batch 1 (MNN, Note 10)", TABLE, "measure", "ms", CLAIM_AT_MOST,
          CLAIM_MEAN, 516.0, 6698.0},
         1.0},
        {{"step of MobileNetV2 at batch 2 (MNN, Note 10)", TABLE, "measure", "ms", CLAIM_AT_MOST,
          CLAIM_MEAN, 812.0, 10651.0},
         2.0},
        {{"step of MobileNetV2 at batch 4 (MNN, Note 10)", TABLE, "measure", "ms", CLAIM_AT_MOST,
          CLAIM_MEAN, 1365.0, 27574.0},
         4.0},
    };
    const json_t *rows = named_rows(of, "measure", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const json_t *row = find(rows, "auto", all[i].batch);
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        if (row != NULL && is_at(row, "image", FULL_IMAGE)) {
            claim_add(&planned, claim_number(row, "predicted_ms"), NO_NUMBER, NO_NUMBER, NETWORK);
            claim_add(&measured, time_of(row, "auto", "step", ""),
                      time_of(row, "auto", "step", "low_"), time_of(row, "auto", "step", "high_"),
                      NETWORK);
        }
        tell_differs(of, rows, "; Dunlin as it is, counted at 224 pixels alone", differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

static void add_peer_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        double batch;
    } all[] = {
        {{"PyTorch's step over the light library's, MobileNetV2, batch 1 (48274 of 6698 ms)", TABLE,
          "measure", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 48274.0 / 6698.0, 1.0},
         1.0},
        {{"PyTorch's step over the light library's, MobileNetV2, batch 2 (79097 of 10651 ms)",
          TABLE, "measure", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 79097.0 / 10651.0, 1.0},
         2.0},
    };
    const json_t *rows = named_rows(of, "measure", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const json_t *row = find(rows, "auto", all[i].batch);
        char differs[TEXT_BYTES];
        const claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        if (row != NULL) {
            claim_add(&measured,
                      time_of(row, PYTORCH, "step", "") / time_of(row, "auto", "step", ""),
                      time_of(row, PYTORCH, "step", "low_") / time_of(row, "auto", "step", "high_"),
                      time_of(row, PYTORCH, "step", "high_") / time_of(row, "auto", "step", "low_"),
                      NETWORK);
        }
        tell_differs(of, rows,
                     "; Dunlin in place of MNN, PyTorch on this processor with OpenBLAS "
                     "or MKL, not on a Raspberry Pi",
                     differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

/* --- memory --- */

static double mib_of(const json_t *row, const char *policy)
{
    return claim_number(row, strcmp(policy, PYTORCH) == 0 ? "torch_bytes" : "needed_bytes") / MIB;
}

static void add_board_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        const char *policy;
    } all[] = {
        {{"MobileNetV2 at batch 4 is out of memory on a board of 1 GB: no memory shared (MNN)",
          TABLE, "measure", "MiB", CLAIM_AT_LEAST, CLAIM_MEAN, BOARD_MIB, BOARD_MIB},
         "none"},
        {{"MobileNetV2 at batch 4 is out of memory on a board of 1 GB: Dunlin as it is", TABLE,
          "measure", "MiB", CLAIM_AT_LEAST, CLAIM_MEAN, BOARD_MIB, BOARD_MIB},
         "auto"},
        {{"MobileNetV2 at batch 4 is out of memory on a board of 1 GB: PyTorch", TABLE, "measure",
          "MiB", CLAIM_AT_LEAST, CLAIM_MEAN, BOARD_MIB, BOARD_MIB},
         PYTORCH},
    };
    const json_t *rows = named_rows(of, "measure", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const json_t *row = find(rows, all[i].policy, 4.0);
        const bool is_torch = strcmp(all[i].policy, PYTORCH) == 0;
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        if (row != NULL && is_at(row, "image", FULL_IMAGE)) {
            claim_add(is_torch ? &measured : &planned, mib_of(row, all[i].policy), NO_NUMBER,
                      NO_NUMBER, NETWORK);
        }
        tell_differs(of, rows,
                     "; the trainer's own bytes, of PyTorch the process's above what the "
                     "library takes, without the system's; counted at 224 pixels alone",
                     differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

/* The largest batches that budgets like those of phones hold. */
static void add_batch_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        const char *policy;
    } all[] = {
        {{"largest batch in 6 to 8 GB, 16 to 32: no memory shared", "abstract", "max-batch",
          "examples", CLAIM_AT_MOST, CLAIM_EACH, 32.0, 32.0},
         "none"},
        {{"largest batch in 6 to 8 GB, 16 to 32: Dunlin, at most 1.3 x the fastest example",
          "abstract", "max-batch", "examples", CLAIM_AT_MOST, CLAIM_EACH, 32.0, 32.0},
         "auto within 1.3 x"},
    };
    const json_t *rows = named_rows(of, "max-batch", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            const double gib = claim_number(row, "budget_bytes") / (1024.0 * MIB);
            if (claim_is(row, "policy", all[i].policy) && is_at(row, "image", FULL_IMAGE) &&
                gib >= 6.0 && gib <= 8.0) {
                claim_add(&planned, claim_number(row, "max_batch"), NO_NUMBER, NO_NUMBER,
                          claim_text(row, "model"));
            }
        }
        tell_differs(of, rows,
                     "; the whole budget is the trainer's, where a phone keeps much of it "
                     "for itself; counted at 224 pixels alone, and in such budgets",
                     differs);
        claims_add_row(out, NAME, &all[i].what, &planned, NULL, differs);
    }
}

/* What has no part here. */
static void add_open_rows(json_t *out)
{
    static const struct {
        claim what;
        const char *differs;
    } all[] = {
        {{"DL4J's step over MNN's, MobileNetV2, batch 1 (3032 of 516 ms)", TABLE, NULL, "x",
          CLAIM_AT_LEAST, CLAIM_MEAN, 3032.0 / 516.0, 1.0},
         "DL4J is not run"},
        {{"a GPU does not make training faster", "abstract", NULL, "x", CLAIM_AT_MOST, CLAIM_EACH,
          NO_NUMBER, 1.0},
         "the trainer computes on the processor alone"},
        {{"the batches that fit are too small to converge well", "abstract", NULL, "points",
          CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, 0.0},
         "dunlin-study melon answers it"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        claims_add_row(out, NAME, &all[i].what, NULL, NULL, all[i].differs);
    }
}

static void add_figures(const named_tables *of, json_t *rows)
{
    add_ratio_rows(of, rows);
    add_growth_rows(of, rows);
    add_step_rows(of, rows);
    add_peer_rows(of, rows);
    add_board_rows(of, rows);
    add_batch_rows(of, rows);
    add_open_rows(rows);
}

const study_named study_emdl = {
    .name = NAME,
    .title = "Measurements of on-device training (EMDL 2020), figure by figure",
    .question = "What do a step and an inference take here, beside PyTorch, and do the first "
                "measurements on phones still say it?",
    .method = "The paper measured MNN and others on six phones and a Raspberry Pi. Here Dunlin "
              "runs as it is (auto) and with no memory shared (none, as a plain trainer), and "
              "PyTorch beside it in the same run, on the same network, batch and threads. Each "
              "row's rule says what the word follows from.",
    .parts = {{.kind = &study_measure, .share = 4.0},
              {.kind = &study_max_batch,
               .share = 1.0,
               .whole = {.models = "lenet5,squeezenet1_1,mobilenet_v2,googlenet,alexnet",
                         .budgets = "6GiB,8GiB",
                         .policies = "none,auto"},
               .quick = {.models = NETWORK, .budgets = "6GiB,8GiB", .policies = "none"}}},
    .n_parts = 2,
    .claims_fn = add_figures,
};
