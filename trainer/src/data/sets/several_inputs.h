/*
 * several_inputs.h - a user's arrays with several inputs an example.
 */
#ifndef DUNLIN_DATA_SEVERAL_INPUTS_H
#define DUNLIN_DATA_SEVERAL_INPUTS_H

#include "data/readers/own_rows.h"

/* A set whose examples are the inputs one after another, as floats. ARGUMENT: the files are not one
 * for each input and one for labels, once or twice. MISMATCH: the model has not as many inputs. */
dunlin_status dunlin__several_load(dunlin_dataset *set, const dunlin_data_request *request,
                                   const dunlin_own_spec *spec, dunlin_error *error);

#endif
