/*
 * flags_grid.c - the lists of the command line: networks, policies, batches, rates, partitions.
 */
#include "named.h"
#include "precision.h"

#include <dunlin/tools.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BATCH 65536
#define MOST_RATE 1000.0
#define MOST_RATIO 1e6

bool study_checksum_file(const char *path, uint64_t *io_sum)
{
    FILE *file = fopen(path, "re");
    for (int byte; file != NULL && (byte = fgetc(file)) != EOF;) {
        *io_sum = (*io_sum ^ (uint8_t)byte) * 0x100000001b3ULL;
    }
    const bool is_read = file != NULL && ferror(file) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read;
}

bool study_is_grid(const study_flags *flags)
{
    return flags->n_rates > 0 || flags->has_rule_rate || flags->n_partitions > 0 ||
           flags->n_ghosts > 0 || flags->n_rules > flags->n_batches || flags->epochs > 0 ||
           flags->rounds > 0 || flags->n_clients > 0 || flags->cohort > 0 ||
           flags->max_examples > 0 || flags->validation != NULL || flags->schedule != NULL ||
           flags->has_warmup || flags->weight_decay > 0.0 || flags->augment != NULL;
}

/* The name of the zoo, or a copy of the path of a file, which lives as long as the flags; NULL:
 * neither. */
static const char *find_model(study_flags *flags, const char *piece)
{
    int32_t i = 0;
    while (dunlin_zoo_name(i) != NULL && strcmp(dunlin_zoo_name(i), piece) != 0) {
        i++;
    }
    if (dunlin_zoo_name(i) != NULL || !study_is_file(piece)) {
        return dunlin_zoo_name(i);
    }
    flags->models_bytes = flags->models_bytes == 0 ? STUDY_CHECKSUM_BEGIN : flags->models_bytes;
    if (flags->n_files == STUDY_MAX_FILES || !study_checksum_file(piece, &flags->models_bytes)) {
        return NULL;
    }
    char *path = flags->file_list[flags->n_files++];
    memcpy(path, piece, strlen(piece) + 1);
    return path;
}

int study_check_models(study_flags *flags)
{
    const char *at = flags->models;
    flags->n_models = 0;
    flags->n_files = 0;
    flags->models_bytes = 0;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        const char *name = flags->n_models == STUDY_MAX_LIST - 1 ? NULL : find_model(flags, piece);
        if (name == NULL) {
            return program_misuse(&study_program,
                                  "--models %s: no network of the zoo, and no ONNX file that can "
                                  "be read",
                                  piece);
        }
        flags->model_list[flags->n_models++] = name;
    }
    return EXIT_OK;
}

/* A whole number from 1 to `most`, and nothing behind it. */
static bool take_count(const char *text, int64_t most, int64_t *out_count)
{
    char *end = NULL;
    const long long count = strtoll(text, &end, 10);
    *out_count = count;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && count >= 1 && count <= most;
}

static bool take_real(const char *text, double *out_number)
{
    char *end = NULL;
    *out_number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out_number);
}

int study_check_policies(study_flags *flags)
{
    const char *at = flags->policies;
    flags->n_policies = 0;
    flags->n_ghosts = 0;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        const bool is_ghost = strncmp(piece, "ghost:", 6) == 0;
        bool is_good = false;
        if (is_ghost && flags->n_ghosts < STUDY_MAX_LIST) {
            is_good = take_count(piece + 6, MOST_BATCH, &flags->ghost_list[flags->n_ghosts]);
            flags->n_ghosts += is_good ? 1 : 0;
        } else if (!is_ghost && flags->n_policies < STUDY_MAX_LIST) {
            is_good = policy_parse(piece, &flags->policy_list[flags->n_policies]);
            flags->n_policies += is_good ? 1 : 0;
        }
        if (!is_good) {
            return program_misuse(&study_program, "--policies %s: expected some of %s, or ghost:N",
                                  piece, policy_names());
        }
    }
    return EXIT_OK;
}

static bool take_rule(const char *piece, study_rule *out)
{
    *out = (study_rule){.batch = 0};
    const int length =
        snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, piece);
    if (strlen(piece) != (size_t)length) {
        return false;
    }
    if (strncmp(piece, "price:", 6) == 0) {
        return take_real(piece + 6, &out->ratio) && out->ratio >= 1.0 && out->ratio <= MOST_RATIO;
    }
    return strcmp(piece, "most") == 0 || take_count(piece, MOST_BATCH, &out->batch);
}

/* Studies whose batches come from the command line alone. */
static bool takes_numbers(const char *name)
{
    return strcmp(name, "throughput") == 0 || named_has(name, &study_hybrid) ||
           named_has(name, &study_measure);
}

int study_check_batches(study_flags *flags)
{
    const char *at = flags->batches;
    flags->n_rules = 0;
    flags->n_batches = 0;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        study_rule *rule = &flags->rule_list[flags->n_rules];
        if (flags->n_rules == STUDY_MAX_LIST || !take_rule(piece, rule)) {
            return program_misuse(&study_program,
                                  "--batches %s: expected numbers from 1 to %d, most, or price:F "
                                  "with F from 1 to %g",
                                  piece, MOST_BATCH, MOST_RATIO);
        }
        if (rule->batch == 0 && takes_numbers(flags->study)) {
            return program_misuse(&study_program, "--batches %s: %s takes numbers alone", piece,
                                  flags->study);
        }
        flags->n_rules++;
        if (rule->batch > 0) {
            flags->batch_list[flags->n_batches++] = rule->batch;
        }
    }
    return EXIT_OK;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

static int check_rates(study_flags *flags)
{
    const char *at = flags->rates;
    flags->n_rates = 0;
    flags->has_rule_rate = false;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        double rate = 0.0;
        if (strcmp(piece, "rule") == 0) {
            flags->has_rule_rate = true;
            continue;
        }
        if (flags->n_rates == STUDY_MAX_LIST || !take_real(piece, &rate) || !(rate > 0.0) ||
            rate > MOST_RATE) {
            return program_misuse(&study_program,
                                  "--lr %s: expected rates above 0 and at most %g, or rule", piece,
                                  MOST_RATE);
        }
        flags->rate_list[flags->n_rates++] = rate;
    }
    qsort(flags->rate_list, (size_t)flags->n_rates, sizeof flags->rate_list[0], compare);
    for (int32_t i = 1; i < flags->n_rates; i++) {
        if (!(flags->rate_list[i] > flags->rate_list[i - 1])) {
            return program_misuse(&study_program, "--lr %g stands twice in the list",
                                  flags->rate_list[i]);
        }
    }
    return EXIT_OK;
}

static int check_partitions(study_flags *flags)
{
    const char *at = flags->partitions;
    flags->n_partitions = 0;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        double alpha = 0.0;
        const bool is_dirichlet = strncmp(piece, "dirichlet:", 10) == 0;
        const bool is_good = is_dirichlet
                                 ? take_real(piece + 10, &alpha) && alpha > 0.0 && alpha <= 1e6
                                 : strcmp(piece, "iid") == 0 || strcmp(piece, "writers") == 0;
        if (!is_good || flags->n_partitions == STUDY_MAX_LIST ||
            strlen(piece) >= sizeof flags->partition_list[0]) {
            return program_misuse(&study_program,
                                  "--partition %s: expected some of iid, dirichlet:ALPHA with "
                                  "ALPHA above 0 and at most 1e6, and writers",
                                  piece);
        }
        memcpy(flags->partition_list[flags->n_partitions++], piece,
               strlen(piece) + 1); /* it fits */
    }
    return EXIT_OK;
}

static int check_schedule(study_flags *flags)
{
    static const struct {
        const char *name;
        dunlin_schedule_kind kind;
    } kinds[] = {{"constant", DUNLIN_SCHEDULE_CONSTANT},
                 {"cosine", DUNLIN_SCHEDULE_COSINE},
                 {"linear", DUNLIN_SCHEDULE_LINEAR}};
    for (size_t i = 0; flags->schedule != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, flags->schedule) == 0) {
            flags->schedule_kind = kinds[i].kind;
            return EXIT_OK;
        }
    }
    return flags->schedule == NULL
               ? EXIT_OK
               : program_misuse(&study_program,
                                "--schedule %s: expected constant, cosine or linear",
                                flags->schedule);
}

static int check_validation(study_flags *flags)
{
    dunlin_validation held_out = DUNLIN_VALIDATION_INIT;
    return flags->validation == NULL ||
                   dunlin_tools_parse_validation(flags->validation, &held_out, NULL)
               ? EXIT_OK
               : program_misuse(&study_program,
                                "--validation %s: expected a share between 0%% and 100%%, as 10%%, "
                                "or a number of examples from 1; :writers and :seed=S may follow",
                                flags->validation);
}

/* Which studies take a flag. */
static int check_places(const study_flags *flags)
{
    const bool is_all = strcmp(flags->study, "all") == 0;
    const bool is_precision = is_all || strcmp(flags->study, "precision") == 0;
    const bool is_federated = is_precision || strcmp(flags->study, "federated") == 0 ||
                              named_has(flags->study, &study_federated);
    const bool trains = is_federated || strcmp(flags->study, "convergence") == 0 ||
                        named_has(flags->study, &study_convergence);
    const bool is_unequal = strcmp(flags->study, "heterogeneity") == 0;
    const struct {
        const char *name;
        bool is_given, is_federated;
        bool is_size; /* of a fleet: heterogeneity's, too */
    } all[] = {
        {"--lr", flags->rates != NULL, false, false},
        {"--partition", flags->partitions != NULL, true, false},
        {"--epochs", flags->epochs > 0, false, true},
        {"--rounds", flags->rounds > 0, true, true},
        {"--clients", flags->n_clients > 0, true, true},
        {"--cohort", flags->cohort > 0, true, true},
        {"--max-examples", flags->max_examples > 0, false, true},
        {"--validation", flags->validation != NULL, false, false},
        {"--schedule", flags->schedule != NULL, false, false},
        {"--warmup", flags->has_warmup, false, false},
        {"--weight-decay", flags->weight_decay > 0.0, false, false},
        {"--augment", flags->augment != NULL, false, false},
        {"--policies ghost", flags->n_ghosts > 0, false, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].is_given && !(all[i].is_federated ? is_federated : trains) &&
            !(all[i].is_size && is_unequal)) {
            return program_misuse(&study_program, "%s goes with %s", all[i].name,
                                  all[i].is_federated ? "federated" : "convergence and federated");
        }
    }
    if (flags->precisions != NULL && !is_precision) {
        return program_misuse(&study_program, "--precisions goes with precision");
    }
    if (flags->torch != NULL && !named_has(flags->study, &study_measure)) {
        return program_misuse(&study_program, "--torch goes with emdl");
    }
    if (flags->cohort > 0 && flags->n_clients > 0 && flags->cohort > flags->n_clients) {
        return program_misuse(&study_program, "--cohort %lld is more than --clients %lld",
                              (long long)flags->cohort, (long long)flags->n_clients);
    }
    return EXIT_OK;
}

int study_check_grid(study_flags *flags)
{
    int (*const checks[])(study_flags *) = {check_rates, check_partitions, check_schedule,
                                            check_validation, precision_check};
    int status = check_places(flags);
    for (size_t i = 0; status == EXIT_OK && i < sizeof checks / sizeof checks[0]; i++) {
        status = checks[i](flags);
    }
    return status == EXIT_OK ? augment_parse(&study_program, flags->augment, &flags->changes)
                             : status;
}
