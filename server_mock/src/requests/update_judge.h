/*
 * update_judge.h - a finished update: joined to one file, and held against the plan.
 */
#ifndef DUNLIN_SERVER_UPDATE_JUDGE_H
#define DUNLIN_SERVER_UPDATE_JUDGE_H

#include "call.h"

/* Copies the chunks of an assignment's update into one file, under a name of this request's own,
 * and judges its values by call->clip_norm: call->is_refused and its text say what is wrong with
 * them. False: it could not be done, and the reply says why. Not locked. */
bool dunlin__update_judge(dunlin__call_state *call, const char *assignment_id);

#endif
