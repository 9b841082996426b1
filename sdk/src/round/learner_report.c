/*
 * learner_report.c - checks what a learner reports, when it reports it: nothing of it is
 * journalled, reported or sent before.
 */
#include "learner_report.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

static dunlin_status refuse_real(dunlin_error *error, const char *name, double value, double least,
                                 double most)
{
    if (!isfinite(value)) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "learner", 0,
                            "the learner reports %s of %g, which is not finite", name, value);
    }
    return dunlin__fail(error, DUNLIN_DATA, "learner", 0,
                        "the learner reports %s of %g; it must be %g to %g", name, value, least,
                        most);
}

static dunlin_status check_real(dunlin_error *error, const char *name, double value, double least,
                                double most)
{
    bool is_right = value >= least && value <= most; /* false for a NaN */
    return is_right ? DUNLIN_OK : refuse_real(error, name, value, least, most);
}

static dunlin_status check_count(dunlin_error *error, const char *name, int64_t value,
                                 int64_t least)
{
    if (value < least || value > DUNLIN_LEARNER_COUNT_MOST) {
        return dunlin__fail(error, DUNLIN_DATA, "learner", 0,
                            "the learner reports %lld %s; it must be %lld to %lld",
                            (long long)value, name, (long long)least,
                            (long long)DUNLIN_LEARNER_COUNT_MOST);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__learner_report_check(const dunlin_learner_report *report, dunlin_error *error)
{
    if (report->struct_size != sizeof *report) {
        return dunlin__fail(error, DUNLIN_CALLBACK, "learner", 0,
                            "the learner has written %zu over its report's struct_size of %zu; it "
                            "must set the report member by member",
                            report->struct_size, sizeof *report);
    }
    /* An update weighs at least one example; before the end there may be none yet. */
    DUNLIN_TRY(check_count(error, "examples", report->n_examples, report->is_done ? 1 : 0));
    DUNLIN_TRY(check_count(error, "steps", report->n_steps, 0));
    DUNLIN_TRY(check_real(error, "a loss", report->loss, -DUNLIN_LEARNER_LOSS_MOST,
                          DUNLIN_LEARNER_LOSS_MOST));
    DUNLIN_TRY(check_real(error, "a share of its work", report->done_share, 0.0, 1.0));
    return check_real(error, "an accuracy", report->accuracy, 0.0, 1.0);
}

dunlin_status dunlin__learner_status_check(dunlin_status status, dunlin_error *error)
{
    if (status != DUNLIN_OK && strcmp(dunlin_status_name(status), "UNKNOWN") == 0) {
        return dunlin__fail(error, DUNLIN_CALLBACK, "learner", (int)status,
                            "the learner answered %d, which is no status", (int)status);
    }
    return status;
}
