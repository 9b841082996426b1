/*
 * precision.h - the study of precisions: which there are, and how each trains; its steps, and the
 * figures of Mandheling (Xu et al., MobiCom 2022) beside ours.
 */
#ifndef SAMPLES_STUDY_PRECISION_H
#define SAMPLES_STUDY_PRECISION_H

#include "study.h"

/* One of them. */
typedef struct precision_way {
    const char *name;
    const char *grad_bits;  /* of the largest updates, stage by stage; NULL: it has a rate */
    const char *fleet_bits; /* the same in a fleet, over its rounds */
    double rate;            /* times the study's own */
} precision_way;

/* In the order of the tables, float32 first; ends with a name that is NULL. */
extern const precision_way precision_ways[];
#define PRECISION_FLOAT "fp32"

/* --precisions, and what else the study takes one of alone. EXIT_OK, or the line is printed. */
int precision_check(study_flags *flags);

bool precision_is_wanted(const study_flags *flags, const char *name);

/* Why a network has no such step, in the trainer's words; false: it has one. */
bool precision_is_refused(const study_subject *subject, const char *name, dunlin_error *out_why);

/* One job for a network: a step in each precision, one after the other. */
void precision_offer_steps(study *at, const char *model, int32_t image, int32_t channels);

/* The table "steps", empty: its rows are marked. */
void precision_add_steps(study *at);

/* The table "claims", out of the study's rows. */
void precision_add_claims(study *at);

#endif
