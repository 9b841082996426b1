/*
 * named.h - named studies: the figures of one paper, out of the other studies with small defaults
 * of their own, and a table of what the paper says beside what came out here (claims.h).
 *
 * A part is one of the other studies; its tables are DIR/NAME_PART.csv, its journal is
 * DIR/NAME_PART.rows. The table of the figures is DIR/NAME_claims.csv. "dunlin-study all" has no
 * named study, since they repeat its parts.
 */
#ifndef SAMPLES_STUDY_NAMED_H
#define SAMPLES_STUDY_NAMED_H

#include "claims.h"
#include "study.h"

/* What a part goes over where the command line says nothing: lists as flags take them. NULL or 0:
 * the study's own. */
typedef struct named_defaults {
    const char *models, *budgets, *policies, *batches, *rates, *partitions, *augment;
    int64_t epochs, rounds, n_clients, max_examples;
    double weight_decay;
} named_defaults;

typedef struct named_part {
    const study_kind *kind;
    double share; /* of the time of a limited run, beside the others' */
    named_defaults whole, quick;
} named_part;

#define NAMED_MOST_PARTS 8

/* The tables of a run's parts, for the figures. */
typedef struct named_tables {
    const study_flags *flags;
    json_t *parts; /* by name; a part that did not run is not there */
} named_tables;

/* The rows of a part, or of a table beside them (`table`, NULL: the rows); NULL where the part did
 * not run. They belong to the tables. */
const json_t *named_rows(const named_tables *of, const char *part, const char *table);

typedef struct study_named {
    const char *name;     /* on the command line, and of the files */
    const char *title;    /* in the report */
    const char *question; /* one sentence */
    const char *method;   /* what the paper did and what differs here in every part */
    named_part parts[NAMED_MOST_PARTS];
    size_t n_parts;
    /* Appends the rows of the paper's figures by claims_add_row(). */
    void (*claims_fn)(const named_tables *of, json_t *rows);
} study_named;

extern const study_named study_melon, study_sage, study_emdl;

/* Parts of sage and of emdl alone. */
extern const study_kind study_hybrid, study_measure;

/* The named studies; ends with NULL. */
extern const study_named *const study_named_all[];

/* Of that name; NULL: there is none. */
const study_named *named_find(const char *name);

/* Whether it is one that has such a part. */
bool named_has(const char *name, const study_kind *kind);

/* --parts: refuses what is no part, and --parts of a study that has none. EXIT_OK, or the line is
 * printed. */
int named_check_parts(study_flags *flags);

/* Whether --parts has a part, or leaves all of them. */
bool named_is_wanted(const study_flags *flags, const char *part);

/* The flags of a part: as given, with the part's own lists where nothing is. They point into
 * `flags`. EXIT_OK, or the line is printed. */
int named_part_flags(const study_flags *flags, const study_named *named, const named_part *part,
                     study_flags *out_flags);

/* DIR/NAME_claims.csv and DIR/NAME.json, from the tables of the parts in DIR that are wanted.
 * EXIT_OK, or the line is printed. */
int named_write_claims(const study_flags *flags, const study_named *named);

#endif
