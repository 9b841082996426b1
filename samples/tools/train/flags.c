/*
 * flags.c - the command line of dunlin-train: what it takes, and what it refuses by name.
 */
#include "common/policies.h"
#include "common/price.h"
#include "common/swap.h"
#include "train.h"

#include <dunlin/model.h>
#include <dunlin/trainer_advanced.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check_policy(train_flags *flags)
{
    if (policy_parse(flags->policy, &flags->policy_value)) {
        if (flags->has_micro_batch && !flags->is_ghost &&
            flags->policy_value != DUNLIN_POLICY_MICROBATCH &&
            flags->policy_value != DUNLIN_POLICY_AUTO) {
            return program_misuse(&train_program, "--micro-batch goes with --policy auto or "
                                                  "microbatch, or with --ghost");
        }
        return EXIT_OK;
    }
    return program_misuse(&train_program, "--policy %s: expected one of %s", flags->policy,
                          policy_names());
}

static int check_swap(train_flags *flags)
{
    const bool does_swap =
        flags->policy_value == DUNLIN_POLICY_VDNN || flags->policy_value == DUNLIN_POLICY_CAPUCHIN;
    if (!does_swap && (flags->swap_dir != NULL || flags->swap_speed != NULL)) {
        return program_misuse(&train_program,
                              "--swap-dir and --swap-speed go with --policy vdnn or capuchin");
    }
    return swap_speed_parse(&train_program, flags->swap_speed, flags->swap_dir,
                            &flags->swap_write_mb_per_s, &flags->swap_read_mb_per_s);
}

/* The number of a name in a list that ends with NULL; -1 if it is not there. */
static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static int check_optimizer(train_flags *flags)
{
    static const char *const names[] = {"sgd", "adam", "adamw", NULL};
    const int found = find_name(names, flags->optimizer);
    if (found < 0) {
        return program_misuse(&train_program, "--optimizer %s: expected sgd, adam or adamw",
                              flags->optimizer);
    }
    flags->optimizer_value = (dunlin_optimizer)found;
    const bool is_sgd = flags->optimizer_value == DUNLIN_OPTIMIZER_SGD;
    if (is_sgd && flags->has_betas) {
        return program_misuse(&train_program,
                              "--beta1, --beta2 and --eps go with --optimizer adam or adamw");
    }
    if (!is_sgd && (flags->has_momentum || flags->is_nesterov)) {
        return program_misuse(&train_program, "--momentum and --nesterov go with --optimizer sgd");
    }
    flags->momentum = is_sgd ? flags->momentum : 0.0;
    if (flags->is_nesterov && !(flags->momentum > 0.0)) {
        return program_misuse(&train_program, "--nesterov goes with --momentum above 0");
    }
    return EXIT_OK;
}

static int check_loss(train_flags *flags)
{
    static const char *const names[] = {"cross-entropy", "mse", "bce", NULL};
    const int found = find_name(names, flags->loss);
    if (found < 0) {
        return program_misuse(&train_program, "--loss %s: expected cross-entropy, mse or bce",
                              flags->loss);
    }
    flags->loss_value = (dunlin_loss)found;
    if (flags->has_ignore_label && flags->loss_value != DUNLIN_LOSS_CROSS_ENTROPY) {
        return program_misuse(&train_program, "--ignore-label goes with --loss cross-entropy");
    }
    if (flags->label_smoothing > 0.0 && flags->loss_value != DUNLIN_LOSS_CROSS_ENTROPY) {
        return program_misuse(&train_program, "--label-smoothing goes with --loss cross-entropy");
    }
    return EXIT_OK;
}

/* --lr-decay is the older name of two of the schedules. */
static int check_schedule(train_flags *flags)
{
    static const char *const names[] = {"constant", "step",   "exponential",
                                        "cosine",   "linear", NULL};
    const bool is_old = flags->lr_decay != NULL;
    if (is_old && strcmp(flags->lr_decay, "linear") != 0 && strcmp(flags->lr_decay, "none") != 0) {
        return program_misuse(&train_program, "--lr-decay %s: expected linear or none",
                              flags->lr_decay);
    }
    if (is_old && flags->schedule != NULL) {
        return program_misuse(&train_program, "--lr-decay and --schedule say the same thing twice");
    }
    if (flags->schedule == NULL) {
        flags->schedule = is_old && strcmp(flags->lr_decay, "none") == 0 ? "constant" : "linear";
    }
    const int found = find_name(names, flags->schedule);
    if (found < 0) {
        return program_misuse(
            &train_program, "--schedule %s: expected constant, step, exponential, cosine or linear",
            flags->schedule);
    }
    flags->schedule_value = (dunlin_schedule_kind)found;
    const bool takes_gamma = flags->schedule_value == DUNLIN_SCHEDULE_STEP ||
                             flags->schedule_value == DUNLIN_SCHEDULE_EXPONENTIAL;
    if (!takes_gamma && (flags->has_gamma || flags->period_steps > 0)) {
        return program_misuse(&train_program,
                              "--gamma and --lr-period go with --schedule step or exponential");
    }
    if (takes_gamma && flags->min_lr > 0.0) {
        return program_misuse(&train_program, "--min-lr goes with --schedule cosine or linear");
    }
    return EXIT_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Files are written beside their place and renamed: a device or a folder cannot be one. */
static int check_target(const char *flag, const char *path)
{
    struct stat info;
    if (path != NULL && stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return program_misuse(&train_program, "%s %s: not a regular file", flag, path);
    }
    return EXIT_OK;
}

static int check_outputs(const train_flags *flags)
{
    if (flags->plan_dump != NULL && !ends_with(flags->plan_dump, ".svg") &&
        !ends_with(flags->plan_dump, ".txt")) {
        return program_misuse(&train_program, "--plan-dump %s: expected a name in .svg or .txt",
                              flags->plan_dump);
    }
    if (flags->save != NULL && !ends_with(flags->save, ".onnx")) {
        return program_misuse(&train_program, "--save %s: expected a name in .onnx", flags->save);
    }
    int status = check_target("--save", flags->save);
    status = status != EXIT_OK ? status : check_target("--costs", flags->costs);
    return status != EXIT_OK ? status : check_target("--checkpoint", flags->checkpoint);
}

static int check_model(const train_flags *flags)
{
    if (flags->model == NULL) {
        return program_misuse(&train_program, "--model is missing: a name or a file in .onnx");
    }
    if (ends_with(flags->model, ".onnx")) {
        return EXIT_OK;
    }
    char names[1024] = "";
    size_t at = 0;
    for (int32_t i = 0; dunlin_zoo_name(i) != NULL; i++) {
        if (strcmp(dunlin_zoo_name(i), flags->model) == 0) {
            return EXIT_OK;
        }
        if (at < sizeof names) {
            at += (size_t)snprintf(names + at, sizeof names - at, "%s, ", dunlin_zoo_name(i));
        }
    }
    return program_misuse(&train_program, "--model %s: expected %sor a file in .onnx", flags->model,
                          names);
}

/* Only images can be cut and turned. */
static int check_images(const train_flags *flags)
{
    const bool is_image_work =
        flags->resize != 0 || flags->crop != 0 || flags->has_random_crop || flags->is_flip;
    return is_image_work && data_n_features(&flags->choice) > 0
               ? program_misuse(&train_program,
                                "--resize, --crop, --random-crop, --flip and crop and flip of "
                                "--augment are for images: --dataset %s has none",
                                flags->choice.name)
               : EXIT_OK;
}

static int check_dataset(train_flags *flags)
{
    flags->choice.index_bytes = flags->data_budget_bytes;
    const char *text = data_choose(flags->data, flags->dataset, &flags->choice);
    if (text != NULL) {
        return program_misuse(&train_program, "%s", text);
    }
    text = data_check_name(&flags->choice);
    if (text == NULL && flags->data_budget_bytes != 0 && !data_is_folder(&flags->choice)) {
        text = "--data-budget goes with --dataset folder:DIR: no other data set has an index";
    }
    return text != NULL ? program_misuse(&train_program, "%s", text) : check_images(flags);
}

static int compare_budgets(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* One size, or several with commas. */
static int check_budget(train_flags *flags)
{
    char text[64 * TRAIN_MAX_FITS];
    if (flags->budget == NULL) {
        return EXIT_OK;
    }
    char *rest = NULL;
    bool is_right = (size_t)snprintf(text, sizeof text, "%s", flags->budget) < sizeof text;
    char *piece = is_right ? strtok_r(text, ",", &rest) : NULL;
    for (; is_right && piece != NULL; piece = strtok_r(NULL, ",", &rest)) {
        uint64_t bytes = 0;
        is_right = flags->n_budgets < TRAIN_MAX_FITS && size_parse(piece, &bytes) && bytes > 0;
        if (is_right) {
            flags->budgets[flags->n_budgets] = bytes;
            flags->n_budgets++;
        }
    }
    if (!is_right || flags->n_budgets == 0) {
        return program_misuse(&train_program,
                              "--budget %s: expected a size, as 65536, 256MiB or 1GB; with "
                              "--what-fits up to %d with commas",
                              flags->budget, TRAIN_MAX_FITS);
    }
    if (flags->n_budgets > 1 && !flags->is_what_fits) {
        return program_misuse(&train_program, "--budget %s: several go with --what-fits",
                              flags->budget);
    }
    qsort(flags->budgets, (size_t)flags->n_budgets, sizeof flags->budgets[0], compare_budgets);
    flags->budget_bytes = flags->budgets[flags->n_budgets - 1];
    return EXIT_OK;
}

static int check_ratio(train_flags *flags)
{
    if (flags->max_ratio_text != NULL && !flags->is_max_batch && !flags->is_what_fits) {
        return program_misuse(&train_program, "--max-ratio goes with --max-batch or --what-fits");
    }
    return price_parse(flags->max_ratio_text, &flags->max_ratio)
               ? EXIT_OK
               : program_misuse(&train_program,
                                "--max-ratio %s: expected any, or a number from 1 to 1e6",
                                flags->max_ratio_text);
}

static int check(train_flags *flags)
{
    int status = check_model(flags);
    status = status != EXIT_OK ? status : check_budget(flags);
    status = status != EXIT_OK ? status : check_ratio(flags);
    status = status != EXIT_OK ? status : train_check_moments(flags);
    status = status != EXIT_OK ? status : train_check_augment(flags);
    status = status != EXIT_OK ? status : check_dataset(flags);
    status = status != EXIT_OK ? status : check_policy(flags);
    status = status != EXIT_OK ? status : check_swap(flags);
    status = status != EXIT_OK ? status : train_check_precision(flags);
    status = status != EXIT_OK ? status : check_optimizer(flags);
    status = status != EXIT_OK ? status : train_check_groups(flags);
    status = status != EXIT_OK ? status : check_loss(flags);
    status = status != EXIT_OK ? status : train_check_several(flags);
    status = status != EXIT_OK ? status : check_schedule(flags);
    status = status != EXIT_OK ? status : check_outputs(flags);
    status = status != EXIT_OK ? status : train_check_log(flags);
    status = status != EXIT_OK ? status : train_check_validation(flags);
    status = status != EXIT_OK ? status : train_check_tops(flags);
    if (status == EXIT_OK && flags->has_micro_batch && flags->micro_batch > flags->batch) {
        status = program_misuse(&train_program, "--micro-batch is above --batch");
    }
    return status;
}

#define AT(member) offsetof(train_flags, member)

static const arg flags_table[] = {
    {.kind = ARG_HEADING, .help = "Model and data"},
    {"--model", ARG_TEXT, AT(model), "NAME|FILE.onnx",
     "lenet5, har_mlp, resnet18, ... (another name lists all) or a file", 0, 0, 0},
    {"--image", ARG_I64, AT(image), "N", "height and width; the network's own otherwise", 8, 4096,
     0},
    {"--length", ARG_I64, AT(length), "N",
     "tokens or samples of an example: of a file what inputs other than images leave open", 1, 1e6,
     0},
    {"--outputs", ARG_TEXT, AT(outputs_given), "NAME[=W],...",
     "of a file with several: those that are trained, the main one first, each with a weight", 0, 0,
     0},
    {"--classes", ARG_I64, AT(classes), "N", "width of the output; of a file: a fresh last layer",
     2, 1e6, 0},
    {"--data", ARG_TEXT, AT(data), "DIR|synthetic",
     "folder of the data sets; else DUNLIN_DATA, else synthetic", 0, 0, 0},
    {"--dataset", ARG_TEXT, AT(dataset), "NAME",
     "synthetic, fashion_mnist, mnist, mnist_writers, cifar10, cifar10_jpeg, cifar100, "
     "cifar100_coarse, wisdm, spsw_har, shakespeare, shakespeare_bpe, made_text, "
     "shakespeare_roles, made_roles; random: in the "
     "model's shape; npy:X,Y, npy:FILE.npz, "
     "csv:FILE[,label=COLUMN][,test=FILE|N%], "
     "folder:DIR: your own",
     0, 0, 0},
    {"--data-budget", ARG_BYTES, AT(data_budget_bytes), "BYTES",
     "the most that the index of folder:DIR may take, 20 bytes and a name a file (any)", 0, 0, 0},
    {"--max-examples", ARG_I64, AT(max_examples), "N", "train on the first N examples only", 1,
     1e12, 0},
    {"--writers", ARG_I64, AT(n_writers), "N", "of the synthetic data set (240)", 1, 1e6, 0},
    {.kind = ARG_HEADING,
     .help = "Preprocessing (each flag makes a pipeline over the stored images)"},
    {"--resize", ARG_I64, AT(resize), "N", "shorter side, bilinear with antialiasing", 1, 4096, 0},
    {"--crop", ARG_I64, AT(crop), "N", "window in the centre; what the model takes otherwise", 1,
     4096, 0},
    {"--random-crop", ARG_I64, AT(padding), "PAD",
     "training: the window anywhere, with PAD pixels around the image", 0, 4096,
     AT(has_random_crop)},
    {"--border", ARG_TEXT, AT(border), "zero|mean",
     "around it: black, or the data's mean, which is zero once normalised (zero)", 0, 0, 0},
    {"--flip", ARG_FLAG, AT(is_flip), NULL, "training: half of the images mirrored", 0, 0, 0},
    {"--augment", ARG_TEXT, AT(augment), AUGMENT_VALUE, AUGMENT_HELP, 0, 0, 0},
    {"--prefetch", ARG_BYTES, AT(prefetch_bytes), "BYTES",
     "for examples made ahead, outside of --budget (0; of a folder 64MiB, decoding included)", 0, 0,
     0},
    {"--prefetch-threads", ARG_I64, AT(ahead_threads), "N",
     "that make them, at most 16 (1; of a folder 2); the weights do not depend on it", 1, 16, 0},
    {.kind = ARG_HEADING, .help = "Training"},
    {"--batch", ARG_I64, AT(batch), "N", "samples per step (32)", 1, 1e9, 0},
    {"--epochs", ARG_I64, AT(epochs), "N", "passes over the data (1, or what --steps takes)", 1,
     1e9, AT(has_epochs)},
    {"--steps", ARG_I64, AT(steps), "N", "stop after N steps of this run", 1, 1e15, AT(has_steps)},
    {"--loss", ARG_TEXT, AT(loss), "NAME",
     "cross-entropy; mse, bce: of one 1 among zeros (cross-entropy)", 0, 0, 0},
    {"--label-smoothing", ARG_F64, AT(label_smoothing), "F", "of cross-entropy (0)", 0, 0.99999, 0},
    {"--ignore-label", ARG_I64, AT(ignore_label), "N",
     "of cross-entropy: examples with this label do not count (none)", INT32_MIN, INT32_MAX,
     AT(has_ignore_label)},
    {"--precision", ARG_TEXT, AT(precision), "NAME",
     "the numbers to train in: niti has int8 weights, activations and errors, niti16 weights of "
     "16 bits; "
     "adaptive-int8, adaptive-fixed, octo, wageubn and mls multiply int8, and are float32 "
     "between (fp32)",
     0, 0, 0},
    {"--storage", ARG_TEXT, AT(storage), "exact|bf16|int8",
     "how a step stores what it keeps: bf16 takes half the memory, int8 about a quarter, and both "
     "round (exact)",
     0, 0, 0},
    {"--grad-bits", ARG_TEXT, AT(grad_bits), "N,...",
     "of niti and niti16: bits of the largest update, in place of a rate: one after the other over "
     "the run "
     "(5,4,3,2,1,0)",
     0, 0, 0},
    {"--weight-growth", ARG_TEXT, AT(growth), "N|off",
     "of niti and niti16: weights of which more than one in N stands at the ends of its range get "
     "one twice as large (64)",
     0, 0, 0},
    {"--optimizer", ARG_TEXT, AT(optimizer), "NAME", "sgd, adam, adamw (sgd)", 0, 0, 0},
    {"--lr", ARG_F64, AT(lr), "F", "learning rate (0.02)", 0, 1e3, AT(has_lr)},
    {"--schedule", ARG_TEXT, AT(schedule), "NAME",
     "constant, step, exponential, cosine, linear: of the rate, over the run (linear)", 0, 0, 0},
    {"--warmup", ARG_I64, AT(warmup_steps), "N", "first the rate rises over N steps (0)", 0, 1e12,
     0},
    {"--gamma", ARG_F64, AT(gamma), "F", "step, exponential: factor of a period (0.1)", 1e-9, 1,
     AT(has_gamma)},
    {"--lr-period", ARG_I64, AT(period_steps), "N", "step, exponential: steps of it (an epoch)", 1,
     1e12, 0},
    {"--min-lr", ARG_F64, AT(min_lr), "F", "cosine, linear: where the rate ends (0)", 0, 1e3, 0},
    {"--lr-decay", ARG_TEXT, AT(lr_decay), "linear|none", "--schedule linear or constant", 0, 0, 0},
    {"--momentum", ARG_F64, AT(momentum), "F", "of sgd (0.9)", 0, 0.99999, AT(has_momentum)},
    {"--nesterov", ARG_FLAG, AT(is_nesterov), NULL, "Nesterov's momentum", 0, 0, 0},
    {"--beta1", ARG_F64, AT(beta1), "F", "of adam, adamw (0.9)", 1e-9, 0.999999999, AT(has_betas)},
    {"--beta2", ARG_F64, AT(beta2), "F", "of adam, adamw (0.999)", 1e-9, 0.999999999,
     AT(has_betas)},
    {"--eps", ARG_F64, AT(eps), "F", "of adam, adamw (1e-8)", 1e-30, 1e3, AT(has_betas)},
    {"--weight-decay", ARG_F64, AT(weight_decay), "F", "L2; of adamw decoupled (0)", 0, 1e3, 0},
    {"--clip-value", ARG_F64, AT(clip_value), "F", "largest element of a gradient (any)", 1e-30,
     1e30, 0},
    {"--clip-norm", ARG_F64, AT(clip_norm), "F", "largest norm of all gradients together (any)",
     1e-30, 1e30, 0},
    {"--frozen", ARG_TEXT, AT(frozen), "PREFIX,...", "parameters that stay as they are", 0, 0, 0},
    {"--trained", ARG_TEXT, AT(trained), "PREFIX,...|head|biases",
     "only these parameters change: by name, of the last layer, or biases and norms", 0, 0, 0},
    {"--decay-norms", ARG_TEXT, AT(decay_norms), "yes|no",
     "no: --weight-decay leaves out biases and norms (yes)", 0, 0, 0},
    {"--groups", ARG_TEXT, AT(groups_given), "[NAME=]PATTERN,...:lr=xF:decay=xF;...",
     "parameters with so many times the rate and decay; @ROLE for a pattern: as --list shows", 0, 0,
     0},
    {"--freeze-batch-norm", ARG_FLAG, AT(freeze_batch_norm), NULL,
     "use running statistics, and keep them", 0, 0, 0},
    {"--keep-order", ARG_FLAG, AT(keep_order), NULL, "do not shuffle", 0, 0, 0},
    {"--drop-last", ARG_FLAG, AT(drop_last), NULL, "leave out an epoch's last, smaller batch", 0, 0,
     0},
    {"--seed", ARG_U64, AT(seed), "N", "weights, order, dropout, synthetic data (0)", 0, 0,
     AT(has_seed)},
    {"--eval", ARG_FLAG, AT(is_eval), NULL, "accuracy on the test split at the end", 0, 0, 0},
    {"--top-k", ARG_TEXT, AT(tops_given), "K[,K]...",
     "and how often the label is among the K highest outputs", 0, 0, 0},
    {"--eval-every", ARG_TEXT, AT(eval_every), "N|epoch", "and on the way, after so many steps", 0,
     0, 0},
    {"--validation", ARG_TEXT, AT(validation), "N%|N[:writers][:seed=S]",
     "examples of the training split, drawn by --seed or S, to evaluate on instead of training; "
     "writers: all of some writers or users, and none of the others",
     0, 0, 0},
    {.kind = ARG_HEADING, .help = "Memory and time"},
    {"--budget", ARG_TEXT, AT(budget), "BYTES",
     "hard line over all the trainer owns, as 1MiB; none otherwise", 0, 0, 0},
    {"--budget-at", ARG_TEXT, AT(budget_at), "STEP[.PERCENT]:BYTES,...",
     "the budget changes in the middle of steps", 0, 0, 0},
    {"--budget-trace", ARG_TEXT, AT(budget_trace), "FILE",
     "the budget follows the clock: lines of SECONDS BYTES", 0, 0, 0},
    {"--policy", ARG_TEXT, AT(policy), "NAME",
     "auto, none, pool, microbatch, ideal, recompute, sgc, sage, melon, sublinear, whole, vdnn, "
     "capuchin (auto)",
     0, 0, 0},
    {"--swap-dir", ARG_TEXT, AT(swap_dir), "DIR",
     "vdnn, capuchin: where tensors are written out to; else TMPDIR, else /var/tmp", 0, 0, 0},
    {"--swap-speed", ARG_TEXT, AT(swap_speed), "WRITE:READ|measure",
     "what that takes and gives, in 10^6 bytes/s, for plans and predictions (250:800, a phone)", 0,
     0, 0},
    {"--micro-batch", ARG_I64, AT(micro_batch), "N",
     "samples per slice; with auto an upper limit, with --ghost exactly", 1, 1e9,
     AT(has_micro_batch)},
    {"--ghost", ARG_FLAG, AT(is_ghost), NULL,
     "batch norm takes its statistics of each slice: other weights, so set --micro-batch", 0, 0, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "(1); the weights do not depend on it", 1, 256, 0},
    {"--isa", ARG_TEXT, AT(isa), "NAME", "sse2, avx2, avx512, neon, generic; the best otherwise", 0,
     0, 0},
    {"--no-fuse", ARG_FLAG, AT(no_fuse), NULL,
     "batch norm, activations and concatenations take passes of their own", 0, 0, 0},
    {"--costs", ARG_TEXT, AT(costs), "FILE",
     "plan by costs measured on this machine; made if it is not there", 0, 0, 0},
    {"--cache", ARG_TEXT, AT(cache), "DIR", "keep plans there, and use those that are", 0, 0, 0},
    {"--max-batch", ARG_FLAG, AT(is_max_batch), NULL,
     "only show the largest batch within --budget that is not too slow, and the largest that fits",
     0, 0, 0},
    {"--max-ratio", ARG_TEXT, AT(max_ratio_text), "F|any",
     "of those: at most so many times the fastest time per example that the budget allows (1.3)", 0,
     0, 0},
    {"--what-fits", ARG_FLAG, AT(is_what_fits), NULL,
     "the same for several budgets: --budget A,B,..., or a ladder", 0, 0, 0},
    {"--list", ARG_FLAG, AT(is_list), NULL,
     "only list every parameter: name, shape, role, trained or not, group", 0, 0, 0},
    {"--plan-only", ARG_FLAG, AT(is_plan_only), NULL, "only plan the step", 0, 0, 0},
    {"--plan-dump", ARG_TEXT, AT(plan_dump), "FILE.svg|.txt", "write the plan", 0, 0, 0},
    {.kind = ARG_HEADING, .help = "Files"},
    {"--save", ARG_TEXT, AT(save), "FILE.onnx", "the trained network, for inference", 0, 0, 0},
    {"--qdq", ARG_FLAG, AT(is_qdq), NULL,
     "of niti: --save writes int8 weights with QuantizeLinear and DequantizeLinear (float32)", 0, 0,
     0},
    {"--checkpoint", ARG_TEXT, AT(checkpoint), "FILE", "write the state at the end", 0, 0, 0},
    {"--resume", ARG_TEXT, AT(resume), "FILE", "go on from such a state", 0, 0, 0},
    {"--log", ARG_TEXT, AT(log), "FILE.csv|FOLDER/",
     "a row for each step, or TensorBoard's event files", 0, 0, 0},
    {"--json", ARG_TEXT, AT(json), "FILE", "results for programs", 0, 0, 0},
};

args_result train_parse(int argc, char **argv, train_flags *out_flags)
{
    *out_flags = (train_flags){.policy = "auto",
                               .decay_norms = "yes",
                               .optimizer = "sgd",
                               .loss = "cross-entropy",
                               .batch = 32,
                               .epochs = 1,
                               .n_threads = 1,
                               .lr = 0.02,
                               .gamma = 0.1,
                               .momentum = 0.9};
    args_result result =
        args_parse(&train_program, flags_table, sizeof flags_table / sizeof flags_table[0], argc,
                   (const char *const *)argv, out_flags);
    if (result.exit_status != EXIT_OK) {
        const char *json = args_find(argc, (const char *const *)argv, "--json");
        out_flags->json = json != NULL ? json : out_flags->json;
    }
    if (!result.is_done) {
        result.exit_status = check(out_flags);
        result.is_done = result.exit_status != EXIT_OK;
    }
    return result;
}
