/*
 * names.c - the words for a session's phases and outcomes.
 */
#include "session.h"

const char *dunlin_phase_name(dunlin_phase phase)
{
    static const char *const NAMES[] = {"idle",  "enrol", "checkin", "accept", "fetch",
                                        "learn", "put",   "upload",  "commit", "abort"};
    return phase >= DUNLIN_PHASE_IDLE && phase <= DUNLIN_PHASE_ABORT ? NAMES[phase] : "unknown";
}

const char *dunlin_outcome_name(dunlin_outcome outcome)
{
    static const char *const NAMES[] = {"none",         "accepted", "not selected", "too early",
                                        "not eligible", "declined", "late",         "refused",
                                        "stopped",      "paused",   "withdrawn",    "run over"};
    return outcome >= DUNLIN_OUTCOME_NONE && outcome <= DUNLIN_OUTCOME_RUN_OVER ? NAMES[outcome]
                                                                                : "unknown";
}
