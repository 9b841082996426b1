/*
 * checks.h - what a pipeline takes.
 */
#ifndef DUNLIN_DATA_PIPELINE_CHECKS_H
#define DUNLIN_DATA_PIPELINE_CHECKS_H

#include <dunlin/pipeline.h>

#define DUNLIN_PIPELINE_SIDE 4096 /* the longest, in pixels */
#define DUNLIN_PIPELINE_CHANNELS 64
#define DUNLIN_PIPELINE_THREADS 16

/* UNSUPPORTED, ARGUMENT. */
dunlin_status dunlin__pipeline_check_source(const dunlin_source *source, const dunlin_shape *shape,
                                            dunlin_error *error);
/* ARGUMENT. */
dunlin_status dunlin__pipeline_check_options(const dunlin_pipeline_options *options,
                                             dunlin_error *error);

#endif
