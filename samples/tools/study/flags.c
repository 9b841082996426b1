/*
 * flags.c - the command line of dunlin-study: what it takes, and what it refuses by name.
 */
#include "named.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define AT(member) offsetof(study_flags, member)

static const arg flags_table[] = {
    {.kind = ARG_HEADING, .help = "What is compared"},
    {"--models", ARG_TEXT, AT(models), "NAME|FILE.onnx,...",
     "networks (each study has its own list)", 0, 0, 0},
    {"--budgets", ARG_TEXT, AT(budgets), "SIZE|N%|none:N,...",
     "bytes, or shares of the ideal step of batch 32, or what a step of N examples takes with no "
     "memory shared",
     0, 0, 0},
    {"--policies", ARG_TEXT, AT(policies), "NAME|ghost:N,...",
     "as dunlin-train --policy; ghost:N, of convergence and federated: batch norm over every N "
     "examples alone",
     0, 0, 0},
    {"--batches", ARG_TEXT, AT(batches), "N|price:F|most,...",
     "of throughput (N), convergence and federated: price:F is the largest batch within F times "
     "the fastest time per example of its budget, most the largest that fits",
     0, 0, 0},
    {"--traces", ARG_TEXT, AT(traces), "FILE,...",
     "adaptation: budgets over steps, lines of STEP[.PERCENT] SIZE|N%", 0, 0, 0},
    {"--target", ARG_F64, AT(target), "F", "accuracy that convergence and federated aim at", 0.01,
     1, 0},
    {"--precisions", ARG_TEXT, AT(precisions), "NAME,...",
     "of precision: some of fp32 and the others of dunlin-train --precision (all)", 0, 0, 0},
    {"--parts", ARG_TEXT, AT(parts), "STUDY,...", "of a named study, those studies alone", 0, 0, 0},
    {.kind = ARG_HEADING, .help = "How convergence and federated train"},
    {"--lr", ARG_TEXT, AT(rates), "F|rule,...",
     "rates: of several the best on a validation split, for each batch, on --seed; the runs are "
     "then of the seeds after it. rule: the study's, beside it (rule)",
     0, 0, 0},
    {"--partition", ARG_TEXT, AT(partitions), "iid|dirichlet:A|writers,...",
     "federated: how the examples are shared out, by FedAvg", 0, 0, 0},
    {"--epochs", ARG_I64, AT(epochs), "N", "over the data, or a device's data in a round", 1, 10000,
     0},
    {"--rounds", ARG_I64, AT(rounds), "N",
     "federated; as the next three of heterogeneity by its name, too", 1, 100000, 0},
    {"--clients", ARG_I64, AT(n_clients), "N", "federated: devices", 2, 65536, 0},
    {"--cohort", ARG_I64, AT(cohort), "N", "federated: of them in a round (all)", 1, 65536, 0},
    {"--max-examples", ARG_I64, AT(max_examples), "N",
     "the first N of the training split, what is held out included", 2, 1e12, 0},
    {"--validation", ARG_TEXT, AT(validation), "N%|N[:seed=S]",
     "held out of the training split to choose rates by, whole writers or users where they are "
     "known (10%, where rates are chosen)",
     0, 0, 0},
    {"--schedule", ARG_TEXT, AT(schedule), "NAME",
     "constant, cosine or linear (convergence: cosine; federated: constant in each round)", 0, 0,
     0},
    {"--warmup", ARG_F64, AT(warmup_percent), "PERCENT",
     "of the steps, with a growing rate (convergence: 5; federated: 0, of a round's)", 0, 100,
     AT(has_warmup)},
    {"--weight-decay", ARG_F64, AT(weight_decay), "F", "on all parameters (0)", 0, 1000, 0},
    {"--augment", ARG_TEXT, AT(augment), AUGMENT_VALUE, AUGMENT_HELP, 0, 0, 0},
    {"--jobs", ARG_I64, AT(n_jobs), "N", "runs in so many processes at a time (1)", 1, 256, 0},
    {"--energy", ARG_TEXT, AT(energy), "DIR",
     "the folder with powercap and power_supply, which count energy (/sys/class)", 0, 0, 0},
    {.kind = ARG_HEADING, .help = "How"},
    {"--quick", ARG_FLAG, AT(is_quick), NULL, "small images, few steps: minutes for all", 0, 0, 0},
    {"--steps", ARG_I64, AT(steps), "N", "timed steps of a measurement (5; quick: 3)", 1, 10000, 0},
    {"--seeds", ARG_I64, AT(n_seeds), "N", "runs of convergence and federated (3; quick: 2)", 1, 64,
     0},
    {"--seed", ARG_U64, AT(seed), "N", "the first of them; same seed, same tables (1)", 0, 0, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "of each trainer (1)", 1, 256, 0},
    {"--torch", ARG_TEXT, AT(torch), "PYTHON|none",
     "emdl: the Python that has PyTorch and torchvision (python3, else /usr/bin/python3)", 0, 0, 0},
    {"--costs", ARG_TEXT, AT(costs), "FILE",
     "plan by costs measured before (one model, one image size); else a roofline, the same "
     "everywhere",
     0, 0, 0},
    {"--data", ARG_TEXT, AT(data), "DIR|synthetic",
     "folder of the data sets; else DUNLIN_DATA, else synthetic", 0, 0, 0},
    {"--dataset", ARG_TEXT, AT(dataset), "NAME",
     "one data set for every network, by the names of dunlin-train --dataset, folder:DIR, npy:X,Y "
     "and csv:FILE too; each study's own otherwise",
     0, 0, 0},
    {"--image", ARG_I64, AT(image), "N",
     "height and width of the images; else the data set's with --dataset, else the study's; of a "
     "network that takes none so small, the least of 64, 96, 128 and 224 that it takes",
     8, 4096, 0},
    {"--classes", ARG_I64, AT(classes), "N",
     "outputs of each network, but of fleets'; else as many as --dataset has classes, else the "
     "study's",
     2, 1000000, 0},
    {"--swap-speed", ARG_TEXT, AT(swap_speed), "WRITE:READ|measure",
     "what the file of vdnn and capuchin takes and gives, in 10^6 bytes/s, for plans and "
     "predictions (250:800, a phone); measured, it does not repeat",
     0, 0, 0},
    {"--max-minutes", ARG_F64, AT(max_minutes), "N",
     "begin no new part after so many minutes, and list what is left out; 0: no limit (all "
     "--quick and named studies with --quick: 15)",
     0, 1e6, 0},
    {"--max-processor-minutes", ARG_F64, AT(max_processor_minutes), "N",
     "the same in minutes of processor time (there 20; precision: 240, with --quick 10)", 0, 1e6,
     0},
    {.kind = ARG_HEADING, .help = "Files"},
    {"--swap-dir", ARG_TEXT, AT(swap_dir), "DIR",
     "where vdnn and capuchin write tensors out to; else TMPDIR, else /var/tmp", 0, 0, 0},
    {"--out", ARG_TEXT, AT(out), "DIR", "for tables and report (study)", 0, 0, 0},
    {"--resume", ARG_FLAG, AT(is_resume), NULL, "keep the finished parts that are in DIR", 0, 0, 0},
    {"--no-times", ARG_FLAG, AT(no_times), NULL,
     "CSV without the columns that clock and wire filled: they then repeat to the byte", 0, 0, 0},
    {"--json", ARG_TEXT, AT(json), "FILE", "all tables as one JSON object", 0, 0, 0},
};

static int check_budgets(study_flags *flags)
{
    const char *at = flags->budgets;
    flags->n_budgets = 0;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        if (flags->n_budgets == STUDY_MAX_LIST ||
            !study_parse_budget(piece, &flags->budget_list[flags->n_budgets])) {
            return program_misuse(
                &study_program,
                "--budgets %s: expected sizes as 256MiB, shares as 60%%, or none:N with N from 1",
                piece);
        }
        flags->n_budgets++;
    }
    return EXIT_OK;
}

/* The costs must be there: a study that measured them would not repeat. */
static int check_costs(study_flags *flags)
{
    FILE *file = flags->costs == NULL ? NULL : fopen(flags->costs, "re");
    if (flags->costs != NULL && file == NULL) {
        return program_misuse(&study_program, "--costs %s: %s (dunlin-train --costs makes one)",
                              flags->costs, strerror(errno));
    }
    if (file != NULL && flags->n_models != 1) {
        (void)fclose(file);
        return program_misuse(&study_program,
                              "--costs %s: costs are of one network: name it with --models",
                              flags->costs);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    flags->costs_bytes = STUDY_CHECKSUM_BEGIN;
    return flags->costs == NULL || study_checksum_file(flags->costs, &flags->costs_bytes)
               ? EXIT_OK
               : program_misuse(&study_program, "--costs %s cannot be read", flags->costs);
}

static int check_swap(study_flags *flags)
{
    return swap_speed_parse(&study_program, flags->swap_speed, flags->swap_dir,
                            &flags->swap_write_mb_per_s, &flags->swap_read_mb_per_s);
}

/* Which studies there are is main.c's to say, and named.c's. */
static int check_study(study_flags *flags)
{
    if (flags->study == NULL) {
        return program_misuse(&study_program, "which study? --help lists them");
    }
    return named_check_parts(flags);
}

int study_check_lists(study_flags *flags)
{
    int (*const checks[])(study_flags *) = {study_check_models, check_budgets, study_check_policies,
                                            study_check_batches, study_check_grid};
    int status = EXIT_OK;
    for (size_t i = 0; status == EXIT_OK && i < sizeof checks / sizeof checks[0]; i++) {
        status = checks[i](flags);
    }
    return status;
}

static int check_folders(study_flags *flags)
{
    if (mkdir(flags->out, 0755) != 0 && errno != EEXIST) {
        return program_fail(&study_program, "--out %s cannot be made: %s", flags->out,
                            strerror(errno));
    }
    return EXIT_OK;
}

#define NOT_GIVEN (-1.0)
#define QUICK_MINUTES 15.0
#define QUICK_PROCESSOR_MINUTES 20.0
#define PRECISION_MINUTES 240.0 /* of the processor */
#define QUICK_PRECISION_MINUTES 10.0

/* All studies in small take minutes; whatever else is asked for takes what it takes. */
static void set_limits(study_flags *flags)
{
    const bool is_all = flags->is_quick && flags->study != NULL &&
                        (strcmp(flags->study, "all") == 0 || named_find(flags->study) != NULL);
    if (flags->max_processor_minutes < 0.0 && flags->study != NULL &&
        strcmp(flags->study, "precision") == 0) {
        flags->max_processor_minutes =
            flags->is_quick ? QUICK_PRECISION_MINUTES : PRECISION_MINUTES;
    }
    if (flags->max_minutes < 0.0) {
        flags->max_minutes = is_all ? QUICK_MINUTES : 0.0;
    }
    if (flags->max_processor_minutes < 0.0) {
        flags->max_processor_minutes = is_all ? QUICK_PROCESSOR_MINUTES : 0.0;
    }
}

args_result study_parse(int argc, char **argv, study_flags *out_flags)
{
    *out_flags = (study_flags){.out = "study",
                               .seed = 1,
                               .n_threads = 1,
                               .max_minutes = NOT_GIVEN,
                               .max_processor_minutes = NOT_GIVEN,
                               .program = argv[0],
                               .n_jobs = 1,
                               .energy = "/sys/class"};
    const bool has_study = argc > 1 && argv[1][0] != '-';
    args_result result = args_parse(
        &study_program, flags_table, sizeof flags_table / sizeof flags_table[0],
        has_study ? argc - 1 : argc, (const char *const *)argv + (has_study ? 1 : 0), out_flags);
    if (result.is_done) {
        return result;
    }
    out_flags->study = has_study ? argv[1] : NULL;
    set_limits(out_flags);
    out_flags->steps = out_flags->steps != 0 ? out_flags->steps : out_flags->is_quick ? 3 : 5;
    out_flags->n_seeds = out_flags->n_seeds != 0 ? out_flags->n_seeds : out_flags->is_quick ? 2 : 3;
    int (*const checks[])(study_flags *) = {check_study, study_check_lists, check_costs,
                                            check_swap,  study_check_data,  check_folders};
    int status = EXIT_OK;
    for (size_t i = 0; status == EXIT_OK && i < sizeof checks / sizeof checks[0]; i++) {
        status = checks[i](out_flags);
    }
    return (args_result){.is_done = status != EXIT_OK, .exit_status = status};
}
