/*
 * named.c - named studies: which there are, the flags of their parts, the table of a paper's
 * figures.
 */
#include "named.h"

#include <stdio.h>
#include <string.h>

const study_named *const study_named_all[] = {&study_melon, &study_sage, &study_emdl, NULL};

const study_named *named_find(const char *name)
{
    for (size_t i = 0; name != NULL && study_named_all[i] != NULL; i++) {
        if (strcmp(study_named_all[i]->name, name) == 0) {
            return study_named_all[i];
        }
    }
    return NULL;
}

bool named_has(const char *name, const study_kind *kind)
{
    const study_named *named = named_find(name);
    for (size_t i = 0; named != NULL && i < named->n_parts; i++) {
        if (named->parts[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* "max-batch, throughput" */
static void list_parts(const study_named *named, char *out, size_t bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < named->n_parts && length < bytes; i++) {
        length += (size_t)snprintf(out + length, bytes - length, "%s%s", i == 0 ? "" : ", ",
                                   named->parts[i].kind->name);
    }
}

static bool is_part(const study_named *named, const char *name)
{
    for (size_t i = 0; i < named->n_parts; i++) {
        if (strcmp(named->parts[i].kind->name, name) == 0) {
            return true;
        }
    }
    return false;
}

int named_check_parts(study_flags *flags)
{
    const study_named *named = named_find(flags->study);
    const char *at = flags->parts;
    if (flags->parts != NULL && named == NULL) {
        return program_misuse(&study_program, "--parts goes with named studies as %s",
                              study_named_all[0]->name);
    }
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        char all[256];
        if (!is_part(named, piece)) {
            list_parts(named, all, sizeof all);
            return program_misuse(&study_program, "--parts %s: expected some of %s", piece, all);
        }
    }
    return EXIT_OK;
}

bool named_is_wanted(const study_flags *flags, const char *part)
{
    const char *at = flags->parts;
    bool is_found = flags->parts == NULL;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at, piece);) {
        is_found = is_found || strcmp(piece, part) == 0;
    }
    return is_found;
}

static const char *text_or(const char *given, const char *own)
{
    return given != NULL ? given : own;
}

static int64_t number_or(int64_t given, int64_t own)
{
    return given > 0 ? given : own;
}

int named_part_flags(const study_flags *flags, const study_named *named, const named_part *part,
                     study_flags *out_flags)
{
    const named_defaults *own = flags->is_quick ? &part->quick : &part->whole;
    const bool has_images =
        study_data_fits(flags, "mobilenet_v2"); /* networks and changes are for them */
    *out_flags = *flags;
    out_flags->named = named->name;
    out_flags->models = text_or(flags->models, has_images ? own->models : NULL);
    out_flags->budgets = text_or(flags->budgets, own->budgets);
    out_flags->policies = text_or(flags->policies, own->policies);
    out_flags->batches = text_or(flags->batches, own->batches);
    out_flags->rates = text_or(flags->rates, own->rates);
    out_flags->partitions = text_or(flags->partitions, own->partitions);
    out_flags->augment = text_or(flags->augment, has_images ? own->augment : NULL);
    out_flags->epochs = number_or(flags->epochs, own->epochs);
    out_flags->rounds = number_or(flags->rounds, own->rounds);
    out_flags->n_clients = number_or(flags->n_clients, own->n_clients);
    out_flags->max_examples = number_or(flags->max_examples, own->max_examples);
    out_flags->weight_decay = flags->weight_decay > 0.0 ? flags->weight_decay : own->weight_decay;
    return study_check_lists(out_flags);
}

/* --- the paper's figures --- */

const json_t *named_rows(const named_tables *of, const char *part, const char *table)
{
    return json_object_get(json_object_get(of->parts, part), table == NULL ? "rows" : table);
}

/* What the parts left in DIR. */
static named_tables load_tables(const study_flags *flags, const study_named *named)
{
    named_tables tables = {.flags = flags, .parts = json_object()};
    study_flags inside = *flags;
    inside.named = named->name;
    for (size_t i = 0; i < named->n_parts; i++) {
        char path[OUTPUT_PATH_BYTES];
        const char *part = named->parts[i].kind->name;
        json_t *table = named_is_wanted(flags, part) && study_path(&inside, part, ".json", path)
                            ? json_load_file(path, 0, NULL)
                            : NULL;
        if (table != NULL) {
            (void)json_object_set_new(tables.parts, part, table);
        }
    }
    return tables;
}

static json_t *describe(const study_flags *flags, const study_named *named, const json_t *rows)
{
    char command[2200];
    json_t *columns = json_array();
    for (size_t c = 0; claims_columns[c] != NULL; c++) {
        (void)json_array_append_new(columns, json_string(claims_columns[c]));
    }
    (void)snprintf(command, sizeof command, "dunlin-study %s%s", named->name, flags->command);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:O}", "name", named->name, "title",
                     named->title, "question", named->question, "method", named->method, "command",
                     command, "columns", columns, "rows", rows);
}

int named_write_claims(const study_flags *flags, const study_named *named)
{
    char path[OUTPUT_PATH_BYTES];
    char error[OUTPUT_ERROR_BYTES];
    named_tables tables = load_tables(flags, named);
    json_t *rows = json_array();
    named->claims_fn(&tables, rows);
    json_t *whole = describe(flags, named, rows);
    int status = study_write_rows(flags, named->name, "_claims.csv", claims_columns, rows);
    if (status == EXIT_OK && (whole == NULL || !study_path(flags, named->name, ".json", path) ||
                              !output_json(path, whole, error))) {
        status =
            program_fail(&study_program, "%s/%s.json cannot be written", flags->out, named->name);
    }
    json_decref(whole);
    json_decref(rows);
    json_decref(tables.parts);
    return status;
}
