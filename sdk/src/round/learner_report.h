/*
 * learner_report.h - checks what a learner reports.
 */
#ifndef DUNLIN_SDK_LEARNER_REPORT_H
#define DUNLIN_SDK_LEARNER_REPORT_H

#include <dunlin/learner.h>

/* NUMERIC for what is not finite, DATA for what is out of range. */
dunlin_status dunlin__learner_report_check(const dunlin_learner_report *report,
                                           dunlin_error *error);
/* A status as a learner may give it, or CALLBACK. */
dunlin_status dunlin__learner_status_check(dunlin_status status, dunlin_error *error);

#endif
