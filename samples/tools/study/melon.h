/*
 * melon.h - the named study of Melon (Wang et al., MobiSys 2022): its parts and the paper's
 * figures.
 */
#ifndef SAMPLES_STUDY_MELON_H
#define SAMPLES_STUDY_MELON_H

#include "named.h"

#define MELON "melon"

/* All figures of the paper, in its order: the study's claims_fn. */
void melon_figures(const named_tables *of, json_t *rows);

/* Those of accuracy, of one machine and of fleets. */
void melon_accuracy_figures(const named_tables *of, json_t *rows);

#endif
