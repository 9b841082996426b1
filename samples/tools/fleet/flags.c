/*
 * flags.c - the command line of dunlin-fleet: what it takes, and what it refuses by name.
 */
#include "fleet.h"

#include <dunlin/tools.h>

#include <common/price.h>
#include <ctype.h>
#include <errno.h>
#include <memory/memory.h>
#include <simulate/simulate.h>
#include <stdlib.h>
#include <string.h>

const program_info fleet_program = {
    .name = "dunlin-fleet",
    .purpose = "runs a simulated fleet of clients against a server over HTTPS",
    .examples =
        "  dunlin-fleet --serve --clients 24 --rounds 10\n"
        "      starts a mock server, trains lenet5 on the built-in synthetic glyphs\n"
        "  dunlin-fleet --serve --clients 100 --cohort 10 --rounds 30 --dataset fashion_mnist "
        "--data DIR \\\n"
        "      --partition dirichlet:0.3 --report report.html --json result.json\n"
        "  dunlin-fleet --server https://127.0.0.1:8443 --ca state/ca.pem --clients 24\n"
        "      joins a server that runs already; its key is read from state/signing.pub\n",
};

#define RETRY_MOST_MS (7LL * 24 * 3600 * 1000)

#define AT(member) offsetof(fleet_flags, member)

static const arg args[] = {
    {NULL, ARG_HEADING, 0, NULL, "the server", 0, 0, 0},
    {"--serve", ARG_FLAG, AT(is_serving), NULL, "start dunlin-server for this run", 0, 0, 0},
    {"--server", ARG_TEXT, AT(server_url), "URL", "one that runs already: https://host:port", 0, 0,
     0},
    {"--ca", ARG_TEXT, AT(ca_file), "FILE", "its CA (PEM)", 0, 0, 0},
    {"--key", ARG_TEXT, AT(key_file), "FILE", "its signing key (hex); signing.pub beside the CA", 0,
     0, 0},
    {"--status-token", ARG_TEXT, AT(status_token_file), "FILE",
     "the secret of the server's --status-token, where the server is on another machine", 0, 0, 0},
    {"--population", ARG_TEXT, AT(population), "NAME", "whose work is asked for (fleet)", 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "the fleet", 0, 0, 0},
    {"--clients", ARG_I64, AT(n_clients), "N", "devices (100; with --devices those of its file)", 1,
     1000000, AT(has_clients)},
    {"--first-index", ARG_I64, AT(first_index), "N",
     "with --server: these are devices N, N + 1 ... of several fleets (0)", 0, 65535, 0},
    {"--all-clients", ARG_I64, AT(n_all_clients), "M",
     "devices of all fleets, which share the data (first index + clients)", 1, 1000000, 0},
    {"--tokens", ARG_TEXT, AT(tokens_file), "FILE",
     "devices enrol with these, a line each; the server's --tokens", 0, 0, 0},
    {"--rounds", ARG_I64, AT(n_rounds), "N", "rounds (10)", 1, 100000, 0},
    {"--cohort", ARG_I64, AT(cohort), "K", "devices a round (10, or all if fewer)", 1, 65536,
     AT(has_cohort)},
    {"--over-select", ARG_F64, AT(over_select), "F", "ask so many times the cohort (1)", 1, 100, 0},
    {"--deadline", ARG_F64, AT(deadline_s), "S", "seconds for a round (600)", 1, 86400, 0},
    {"--windows", ARG_TEXT, AT(windows), "A:R", "least wait in ms after taking part, and after not",
     0, 0, 0},
    {"--retry-ms", ARG_TEXT, AT(retry_text), "FIRST:MOST",
     "waits of a device that cannot reach the server (1000:900000)", 0, 0, 0},
    {"--retry-refused-ms", ARG_TEXT, AT(retry_refused_text), "FIRST:MOST",
     "the same of one that is refused, or whose training fails (10000:300000)", 0, 0, 0},
    {"--faults", ARG_TEXT, AT(faults_file), "FILE", "what goes wrong (with --serve)", 0, 0, 0},
    {"--telemetry", ARG_FLAG, AT(sends_telemetry), NULL,
     "devices tell how rounds go, in numbers: see the result", 0, 0, 0},
    {"--state", ARG_TEXT, AT(state_folder), "DIR", "keep databases and files here (else removed)",
     0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "what is trained", 0, 0, 0},
    {"--model", ARG_TEXT, AT(model), "NAME|FILE.onnx",
     "a network of the zoo (lenet5; har_mlp for wisdm, spsw_har), or a file", 0, 0, 0},
    {"--image", ARG_I64, AT(image), "N", "height and width of the images; the data's otherwise", 8,
     4096, 0},
    {"--dataset", ARG_TEXT, AT(dataset), "NAME",
     "fashion_mnist, mnist, mnist_writers, cifar10, cifar10_jpeg, cifar100, cifar100_coarse, "
     "wisdm, "
     "spsw_har or synthetic; shakespeare, shakespeare_bpe, shakespeare_roles; random; npy:X,Y, "
     "csv:FILE, folder:DIR",
     0, 0, 0},
    {"--data", ARG_TEXT, AT(data), "DIR", "where data sets are (else DUNLIN_DATA)", 0, 0, 0},
    {"--max-examples", ARG_I64, AT(max_examples), "N", "share out the first N examples only", 1,
     1e12, 0},
    {"--validation", ARG_TEXT, AT(validation), "N%|N[:writers][:seed=S]",
     "held out of the training split, which no device has; drawn by --seed or S; writers: whole "
     "writers or users",
     0, 0, 0},
    {"--judge", ARG_TEXT, AT(judge), "test|validation",
     "what --serve's server evaluates models on (test)", 0, 0, 0},
    {"--partition", ARG_TEXT, AT(partition), "P",
     "iid, dirichlet:ALPHA, or writers: also users, subjects; the same as roles (iid)", 0, 0, 0},
    {"--algorithm", ARG_TEXT, AT(algorithm), "A", "fedavg, fedprox:MU or scaffold (fedavg)", 0, 0,
     0},
    {"--strategy", ARG_TEXT, AT(strategy), "NAME",
     "of the server: average, fedavgm, fedadagrad, fedadam, fedyogi, median, trimmed_mean[:SHARE] "
     "(average)",
     0, 0, 0},
    {"--server-lr", ARG_F64, AT(server_lr), "F",
     "rate of the server's step: fedavgm (1), fedadam, fedyogi (0.03), fedadagrad (0.01)", 1e-9,
     1000, AT(has_server_lr)},
    {"--server-momentum", ARG_F64, AT(server_momentum), "F", "of fedavgm (0.9)", 0, 0.99999,
     AT(has_server_momentum)},
    {"--beta1", ARG_F64, AT(beta1), "F", "of fedadam, fedyogi (0.9), fedadagrad (0)", 0, 0.99999,
     AT(has_beta1)},
    {"--beta2", ARG_F64, AT(beta2), "F", "of fedadam, fedyogi (0.99)", 0, 0.9999999, AT(has_beta2)},
    {"--tau", ARG_F64, AT(tau), "F", "how adaptive the last three are: less is more (0.001)", 1e-12,
     1, AT(has_tau)},
    {"--trim", ARG_F64, AT(trim), "SHARE",
     "of updates that trimmed_mean leaves out at each end (0.1)", 0, 0.49, AT(has_trim)},
    {"--local", ARG_TEXT, AT(local), "PREFIX[,...]",
     "tensors whose names begin so stay on the devices: personal layers", 0, 0, 0},
    {"--rollback", ARG_F64, AT(rollback), "F",
     "take a model back whose test accuracy is more than this below the best, of 1 (never)", 1e-6,
     1, AT(has_rollback)},
    {"--target-accuracy", ARG_F64, AT(target_accuracy), "F",
     "stop when a model has this test accuracy, of 1 (never)", 1e-6, 1, 0},
    {"--patience", ARG_I64, AT(patience), "N", "stop after N rounds without a better model (never)",
     1, 100000, 0},
    {"--keep-every", ARG_I64, AT(keep_every), "N",
     "with --state: the models of every N-th round stay in server/models (none)", 1, 100000, 0},
    {"--judge-every", ARG_I64, AT(judge_every), "N",
     "the server evaluates the models of every N-th round, and the last (1)", 1, 100000, 0},
    {"--evaluate", ARG_FLAG, AT(evaluates), NULL,
     "devices evaluate on their own data before and after each training", 0, 0, 0},
    {"--evaluate-every", ARG_I64, AT(evaluate_every), "N",
     "every N-th round they only evaluate: the model stays", 1, 100000, 0},
    {"--batch", ARG_TEXT, AT(batch_text), "N|max",
     "samples per step; max: the largest that is not too slow, with ten steps an epoch (32)", 0, 0,
     0},
    {"--max-ratio", ARG_TEXT, AT(max_ratio_text), "F|any",
     "of --batch max: so many times the fastest time per example that the budget allows (1.3)", 0,
     0, 0},
    {"--budget", ARG_BYTES, AT(budget_bytes), "BYTES", "each device's memory for training", 0, 0,
     0},
    {"--epochs", ARG_I64, AT(epochs), "E", "passes over a device's data per round (1)", 1, 10000,
     0},
    {"--lr", ARG_F64, AT(lr), "F", "learning rate (0.02)", 1e-9, 1000, AT(has_lr)},
    {"--lr-decay", ARG_F64, AT(lr_decay), "F", "of the rate, per round (1)", 1e-6, 1, 0},
    {"--momentum", ARG_F64, AT(momentum), "F", "momentum on the device (0.9; 0 with scaffold)", 0,
     0.99999, AT(has_momentum)},
    {"--remainder", ARG_TEXT, AT(remainder), "join|drop|keep",
     "of an epoch: fewer than half a batch join the batch before them, are left out, or are one of "
     "their own (join for networks with batch norm, else keep)",
     0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "the steps on the devices, as dunlin-train has them", 0, 0, 0},
    {"--precision", ARG_TEXT, AT(precision), "NAME",
     "the numbers to train in: niti has int8 weights, activations and errors, and int8 weights go "
     "up; niti16 has weights of 16 bits, which go up as float32; adaptive-int8, adaptive-fixed, "
     "octo, wageubn and mls multiply int8, and are float32 "
     "between (fp32)",
     0, 0, 0},
    {"--storage", ARG_TEXT, AT(storage), "exact|bf16|int8",
     "how devices store what a step keeps: bf16 takes half the memory, int8 about a quarter, and "
     "both round (exact)",
     0, 0, 0},
    {"--grad-bits", ARG_TEXT, AT(grad_bits), "N,...",
     "of niti and niti16: bits of a step's largest update, in place of a rate: one after the other "
     "over the "
     "rounds (5,4,3)",
     0, 0, 0},
    {"--optimizer", ARG_TEXT, AT(optimizer), "NAME",
     "sgd, adam, adamw: begun anew in each round (sgd)", 0, 0, 0},
    {"--schedule", ARG_TEXT, AT(schedule), "NAME",
     "constant, step, exponential, cosine, linear: of the rate, over all rounds (constant)", 0, 0,
     0},
    {"--warmup", ARG_I64, AT(warmup_steps), "N", "first the rate rises over N steps (0)", 0, 1e12,
     0},
    {"--gamma", ARG_F64, AT(gamma), "F", "step, exponential: factor of a period (0.1)", 1e-9, 1,
     AT(has_gamma)},
    {"--lr-period", ARG_I64, AT(period_steps), "N", "step, exponential: steps of it (an epoch)", 1,
     1e12, 0},
    {"--min-lr", ARG_F64, AT(min_lr), "F", "cosine, linear: where the rate ends (0)", 0, 1e3, 0},
    {"--weight-decay", ARG_F64, AT(weight_decay), "F", "L2 (0)", 0, 1, 0},
    {"--clip-norm", ARG_F64, AT(clip_norm), "F",
     "largest norm of all gradients of a step together (any)", 1e-30, 1e30, 0},
    {"--clip-value", ARG_F64, AT(clip_value), "F", "largest element of a gradient (any)", 1e-30,
     1e30, 0},
    {"--frozen", ARG_TEXT, AT(frozen), "PREFIX,...", "parameters that stay as they are", 0, 0, 0},
    {"--trained", ARG_TEXT, AT(trained), "PREFIX,...|head|biases",
     "only these parameters change: by name, of the last layer, or biases and norms", 0, 0, 0},
    {"--decay-norms", ARG_TEXT, AT(decay_norms), "yes|no",
     "no: --weight-decay leaves out biases and norms (yes)", 0, 0, 0},
    {"--groups", ARG_TEXT, AT(groups_given), "[NAME=]PATTERN,...:lr=xF:decay=xF;...",
     "parameters with so many times the rate and decay; @ROLE for a pattern", 0, 0, 0},
    {"--ignore-label", ARG_I64, AT(ignore_label), "N",
     "examples with this label do not count (none)", INT32_MIN, INT32_MAX, AT(has_ignore_label)},
    {"--random-crop", ARG_I64, AT(padding), "PAD",
     "training: a window of the image's size anywhere, with PAD zeros around the image", 0, 4096,
     AT(has_random_crop)},
    {"--flip", ARG_FLAG, AT(is_flip), NULL, "training: half of the images mirrored", 0, 0, 0},
    {"--augment", ARG_TEXT, AT(augment), AUGMENT_VALUE, AUGMENT_HELP, 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "what goes up and down", 0, 0, 0},
    {"--compress", ARG_TEXT, AT(compress), "up:WORDS,down:WORDS",
     "in fewer bytes: f16, bf16, int2 to int8; rotate, entropy; of updates bit, topk:F, randk:F, "
     "too; joined by + (up:f32,down:f32)",
     0, 0, 0},
    {"--keep-model", ARG_FLAG, AT(is_keeping_model), NULL,
     "each device keeps the newest model; then down: takes deltas of it where they are shorter", 0,
     0, 0},
    {"--feedback", ARG_I64, AT(feedback), "N",
     "with topk or randk: what was left out goes with a device's next update within N rounds (no)",
     1, 100000, 0},
    {"--update-clip", ARG_F64, AT(update_clip), "F",
     "largest norm of an update: the averaged tensors' difference from the base (any)", 1e-30, 1e6,
     0},
    {"--update-clip-quantile", ARG_F64, AT(clip_quantile), "Q",
     "moves that bound from round to round, so that this part of the updates is within it", 0.01,
     0.99, 0},
    {"--update-clip-layers", ARG_FLAG, AT(is_clip_layers), NULL,
     "each averaged tensor has the same part of the bound", 0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "what the models tell of a device", 0, 0, 0},
    {"--dp", ARG_TEXT, AT(dp), "CLIP:NOISE,delta=D|epsilon=E,delta=D",
     "noise on each round; with clip=F, sampling=poisson|fixed|arrival, mechanism=tree, "
     "separation=N, most=N, accountant=rdp|pld, and with --secagg noise_by=distributed, "
     "noise_kind=skellam (none)",
     0, 0, 0},
    {"--insecure-noise-seed", ARG_U64, AT(noise_seed), "N",
     "noise that can be repeated: nothing is private then, and page and report say so", 0, 0,
     AT(has_noise_seed)},
    {"--secagg", ARG_FLAG, AT(is_secagg), NULL,
     "secure aggregation: the server sees the sum of a round alone, if it follows the protocol", 0,
     0, 0},
    {"--neighbours", ARG_I64, AT(n_neighbours), "K",
     "of each device in it (as few as hold the chances)", 2, 254, 0},
    {"--secagg-keys", ARG_TEXT, AT(secagg_keys), "KEY=F[,...]",
     "more of the task's secagg: threshold, dropout, corrupt, least_devices, clip, step_s ...", 0,
     0, 0},
    {"--secagg-leave", ARG_F64, AT(secagg_leave), "F",
     "so many devices, drawn anew each round, leave it once they have sent their shares (0)", 0, 1,
     0},
    {NULL, ARG_HEADING, 0, NULL, "the run", 0, 0, 0},
    {"--transport", ARG_TEXT, AT(transport), "wire|memory",
     "memory: server and devices in one process, without network, signatures and files; the same "
     "models to the bit (wire)",
     0, 0, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "devices that work at the same time (2)", 1, 256, 0},
    {"--seed", ARG_U64, AT(seed), "N", "same seed, same figures (1)", 0, 0, 0},
    {"--report", ARG_TEXT, AT(report_file), "FILE", "a self-contained HTML page", 0, 0, 0},
    {"--json", ARG_TEXT, AT(json_file), "FILE", "the results as JSON; - for standard output", 0, 0,
     0},
    {NULL, ARG_HEADING, 0, NULL, "rounds for unequal devices", 0, 0, 0},
    {"--partial", ARG_F64, AT(partial), "SHARE",
     "a training ends after this share of the deadline, and counts for what it did (all of it)",
     0.01, 0.99, 0},
    {"--buffered", ARG_TEXT, AT(buffered), "MAX[:EXPONENT]",
     "rounds overlap (FedBuff): --cohort updates close one, --over-select times as many work at a "
     "time; a base may be MAX rounds older, t rounds count (1 + t)^-EXPONENT (0.5)",
     0, 0, 0},
    {"--select", ARG_TEXT, AT(selection), "KIND",
     "whom a round asks: utility[:S[:PACER_S[:ROUNDS]]], the useful and fast, S seconds are fast; "
     "tiers[:N[:INTERVAL[:CREDITS:...]]], of like speed (hashes; with --devices first come, first "
     "served)",
     0, 0, 0},
    {NULL, ARG_HEADING, 0, NULL, "unequal devices in simulated time", 0, 0, 0},
    {"--devices", ARG_TEXT, AT(devices_file), "FILE", "the devices, a line each", 0, 0, 0},
    {"--costs", ARG_TEXT, AT(costs_file), "FILE", "with --devices: what a step takes", 0, 0, 0},
    {"--measure-costs", ARG_TEXT, AT(measure_file), "FILE",
     "measure that for this model, batch and data, write it, and end", 0, 0, 0},
    {"--sim-hours", ARG_F64, AT(sim_hours), "H",
     "with --devices: give up after so many simulated hours (720)", 0.01, 100000, 0},
    {"--events", ARG_TEXT, AT(events_file), "FILE", "with --devices: all events, as CSV", 0, 0, 0},
    {"--make-devices", ARG_TEXT, AT(make_devices), "N:PROFILE",
     "write N devices into the file of --devices, by --seed, and end: phones2019, phones2025, "
     "mixed",
     0, 0, 0},
};

/* "NAME:NUMBER" with the number in (low, high]. */
static bool parse_suffix(const char *text, const char *name, double high, double *out_value)
{
    size_t length = strlen(name);
    if (strncmp(text, name, length) != 0 || text[length] != ':') {
        return false;
    }
    char *end = NULL;
    *out_value = strtod(text + length + 1, &end);
    return end != text + length + 1 && *end == '\0' && *out_value > 0.0 && *out_value <= high;
}

static int check_partition(fleet_flags *flags)
{
    if (strcmp(flags->partition, "iid") == 0) {
        flags->partition_kind = DUNLIN_PARTITION_IID;
    } else if (strcmp(flags->partition, "writers") == 0 || strcmp(flags->partition, "roles") == 0) {
        flags->partition_kind = DUNLIN_PARTITION_NATURAL;
    } else if (parse_suffix(flags->partition, "dirichlet", 1e6, &flags->alpha)) {
        flags->partition_kind = DUNLIN_PARTITION_DIRICHLET;
    } else {
        return program_misuse(
            &fleet_program,
            "--partition %s: not iid, writers, roles, or dirichlet:ALPHA with ALPHA above 0",
            flags->partition);
    }
    return EXIT_OK;
}

static int check_algorithm(fleet_flags *flags)
{
    if (strcmp(flags->algorithm, "scaffold") == 0) {
        if (flags->has_momentum && flags->momentum > 0.0) {
            return program_misuse(&fleet_program,
                                  "--algorithm scaffold takes plain steps: --momentum 0");
        }
        if (flags->has_rollback) {
            return program_misuse(&fleet_program,
                                  "--rollback: the variates of scaffold's devices cannot be taken "
                                  "back");
        }
        flags->momentum = 0.0;
        return EXIT_OK;
    }
    if (strcmp(flags->algorithm, "fedavg") != 0 &&
        !parse_suffix(flags->algorithm, "fedprox", 1000.0, &flags->proximal_mu)) {
        return program_misuse(
            &fleet_program,
            "--algorithm %s: not fedavg, scaffold, or fedprox:MU with MU in (0, 1000]",
            flags->algorithm);
    }
    return EXIT_OK;
}

static int check_batch(fleet_flags *flags)
{
    if (!price_parse(flags->max_ratio_text, &flags->max_ratio)) {
        return program_misuse(&fleet_program,
                              "--max-ratio %s: expected any, or a number from 1 to 1e6",
                              flags->max_ratio_text);
    }
    if (strcmp(flags->batch_text, "max") == 0) {
        flags->batch = 0;
        if (flags->budget_bytes == 0) {
            return program_misuse(&fleet_program, "--batch max needs a --budget to fit into");
        }
        return EXIT_OK;
    }
    if (flags->max_ratio_text != NULL) {
        return program_misuse(&fleet_program, "--max-ratio goes with --batch max");
    }
    char *end = NULL;
    flags->batch = strtol(flags->batch_text, &end, 10);
    if (*end != '\0' || flags->batch < 1 || flags->batch > 65536) {
        return program_misuse(&fleet_program, "--batch %s: not max or a number from 1 to 65536",
                              flags->batch_text);
    }
    return EXIT_OK;
}

/* "FIRST:MOST" in ms, both at least 1 and in order; what was not given stays as it is. */
static int check_waits(const char *flag, const char *text, wait_range *out)
{
    if (text == NULL) {
        return EXIT_OK;
    }
    char *end = NULL;
    errno = 0;
    out->first_ms = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : 0;
    if (end != NULL && *end == ':' && isdigit((unsigned char)end[1])) {
        out->most_ms = strtoll(end + 1, &end, 10);
    } else {
        end = NULL;
    }
    if (end == NULL || *end != '\0' || errno != 0 || out->first_ms < 1 ||
        out->most_ms < out->first_ms || out->most_ms > RETRY_MOST_MS) {
        return program_misuse(&fleet_program,
                              "%s %s: not FIRST:MOST, milliseconds in order, from 1 to %lld", flag,
                              text, RETRY_MOST_MS);
    }
    return EXIT_OK;
}

static int check_retry(fleet_flags *flags)
{
    int status = check_waits("--retry-ms", flags->retry_text, &flags->retry);
    return status == EXIT_OK
               ? check_waits("--retry-refused-ms", flags->retry_refused_text, &flags->retry_refused)
               : status;
}

static int check_validation(fleet_flags *flags)
{
    flags->held_out = (dunlin_validation)DUNLIN_VALIDATION_INIT;
    flags->held_out.seed = flags->seed;
    if (flags->validation != NULL &&
        !dunlin_tools_parse_validation(flags->validation, &flags->held_out, NULL)) {
        return program_misuse(&fleet_program,
                              "--validation %s: expected a share between 0%% and 100%%, as 10%%, "
                              "or a number of examples from 1; :writers and :seed=S may follow",
                              flags->validation);
    }
    const char *judge = flags->judge != NULL ? flags->judge : "test";
    flags->is_judged_by_held_out = strcmp(judge, "validation") == 0;
    if (!flags->is_judged_by_held_out && strcmp(judge, "test") != 0) {
        return program_misuse(&fleet_program, "--judge %s: expected test or validation", judge);
    }
    if (flags->is_judged_by_held_out && (flags->validation == NULL || !flags->is_serving)) {
        return program_misuse(&fleet_program,
                              "--judge validation goes with --serve and --validation");
    }
    return EXIT_OK;
}

static int check_server(const fleet_flags *flags)
{
    if (flags->is_serving == (flags->server_url != NULL)) {
        return program_misuse(&fleet_program, "give either --serve or --server URL");
    }
    if (flags->server_url != NULL && flags->faults_file != NULL) {
        return program_misuse(&fleet_program, "--faults is for the server that --serve starts");
    }
    if (flags->server_url != NULL && (flags->target_accuracy > 0.0 || flags->patience > 0 ||
                                      flags->keep_every > 0 || flags->judge_every > 0)) {
        return program_misuse(&fleet_program,
                              "--target-accuracy, --patience, --keep-every and --judge-every are "
                              "for the server that --serve starts");
    }
    if (flags->is_serving && (flags->first_index != 0 || flags->n_all_clients != 0)) {
        return program_misuse(&fleet_program, "--first-index and --all-clients are for several "
                                              "fleets at one --server");
    }
    if (flags->server_url != NULL && flags->ca_file == NULL) {
        return program_misuse(&fleet_program, "--server needs --ca, the CA file of that server");
    }
    return EXIT_OK;
}

static int check(fleet_flags *flags)
{
    int (*const checks[])(fleet_flags *) = {
        check_partition,    check_algorithm,      check_batch,          check_retry,
        check_validation,   fleet_check_strategy, fleet_check_compress, fleet_check_dp,
        fleet_check_secagg, fleet_check_unequal};
    if (flags->make_devices != NULL) {
        return sim_check_make(flags);
    }
    int status = flags->measure_file == NULL ? check_server(flags) : EXIT_OK;
    status = status == EXIT_OK ? sim_check(flags) : status;
    status = status == EXIT_OK ? memory_check(flags) : status;
    for (size_t i = 0; status == EXIT_OK && i < sizeof checks / sizeof checks[0]; i++) {
        status = checks[i](flags);
    }
    if (status != EXIT_OK) {
        return status;
    }
    if (flags->n_all_clients == 0) {
        flags->n_all_clients = flags->first_index + flags->n_clients;
    }
    const int64_t n_wanted = flags->first_index + flags->n_clients;
    if (n_wanted > flags->n_all_clients) {
        return program_misuse(&fleet_program,
                              "--all-clients %lld is fewer than --first-index and --clients "
                              "together, %lld",
                              (long long)flags->n_all_clients, (long long)n_wanted);
    }
    if (!flags->has_cohort && flags->cohort > flags->n_clients) {
        flags->cohort = flags->n_clients;
    }
    if (flags->cohort > flags->n_clients) {
        return program_misuse(&fleet_program, "--cohort %lld is more than --clients %lld",
                              (long long)flags->cohort, (long long)flags->n_clients);
    }
    const char *wrong = data_choose(flags->data, flags->dataset, &flags->choice);
    if (wrong != NULL) {
        return program_misuse(&fleet_program, "%s", wrong);
    }
    flags->model = flags->model == NULL ? data_default_model(&flags->choice) : flags->model;
    return fleet_check_orders(flags);
}

args_result fleet_parse(int argc, char **argv, fleet_flags *out_flags)
{
    *out_flags = (fleet_flags){.n_clients = 100,
                               .n_rounds = 10,
                               .cohort = 10,
                               .over_select = 1.0,
                               .deadline_s = 600.0,
                               .partition = "iid",
                               .algorithm = "fedavg",
                               .batch_text = "32",
                               .epochs = 1,
                               .lr = 0.02,
                               .lr_decay = 1.0,
                               .momentum = 0.9,
                               .n_threads = 2,
                               .sim_hours = 720.0,
                               .retry = {1000, 900000},
                               .retry_refused = {10000, 300000},
                               .seed = 1,
                               .population = "fleet"};
    args_result result = args_parse(&fleet_program, args, sizeof args / sizeof args[0], argc,
                                    (const char *const *)argv, out_flags);
    if (!result.is_done) {
        result.exit_status = check(out_flags);
        result.is_done = result.exit_status != EXIT_OK;
    }
    return result;
}
