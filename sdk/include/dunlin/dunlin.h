/*
 * dunlin.h - all of the library: the trainer and the client.
 *
 * Each header can be included by itself, too. Where to look:
 *
 *   a model, from a file or ready-made             model.h, parameters.h
 *   examples: one's own, a data set, a pipeline    arrays.h, source.h, dataset.h, pipeline.h
 *   training within a byte budget                  trainer.h; budget.h, batch.h, costs.h
 *   inference alone; models and states as bytes    predictor.h; bytes.h
 *   a federation                                   client.h; learner.h (one's own), builtin.h
 *   an app's store of examples, its own transport  examples.h, transport.h
 *   statuses, errors, memory, log                  base.h, alloc.h, log.h, tensor.h
 *
 * A library that was built without the trainer (DUNLIN_TRAINER=OFF) has the client alone.
 *
 * Example: three steps of training in at most 2 MiB.
 *
 * @code
 * dunlin_model *model = NULL;
 * dunlin_dataset *set = NULL;
 * dunlin_trainer *trainer = NULL;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
 * dunlin_fit_cursor cursor = {0};
 * dunlin_metrics metrics = {0};
 * dunlin_error error = {0};
 * dunlin_source source;
 * options.budget_bytes = 2 * 1024 * 1024;
 * fit.max_steps = 3;
 * dunlin_status status = dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error);
 * if (status == DUNLIN_OK) {
 *     status = dunlin_dataset_open("fashion_mnist", "data", DUNLIN_SPLIT_TRAIN, NULL, NULL, &set,
 *                                  &error);
 * }
 * if (status == DUNLIN_OK) {
 *     status = dunlin_trainer_create(model, &options, &trainer, &error);
 * }
 * if (status == DUNLIN_OK) {
 *     dunlin_dataset_source(set, &source);
 *     status = dunlin_trainer_fit(trainer, &source, &fit, &cursor, &metrics);
 * }
 * printf("%s, loss %g\n", dunlin_status_name(status), metrics.loss);
 * dunlin_trainer_destroy(trainer);
 * dunlin_dataset_close(set);
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_DUNLIN_H
#define DUNLIN_DUNLIN_H

#include <dunlin/alloc.h>
#include <dunlin/app_model.h>
#include <dunlin/base.h>
#include <dunlin/client.h>
#include <dunlin/examples.h>
#include <dunlin/learner.h>
#include <dunlin/log.h>
#include <dunlin/tensor.h>
#include <dunlin/transport.h>

#ifdef __has_include
#if __has_include(<dunlin/trainer.h>)
#define DUNLIN_HAS_TRAINER_HEADERS
#endif
#endif
#ifdef DUNLIN_HAS_TRAINER_HEADERS
#include <dunlin/arrays.h>
#include <dunlin/attention.h>
#include <dunlin/batch.h>
#include <dunlin/budget.h>
#include <dunlin/builtin.h>
#include <dunlin/bytes.h>
#include <dunlin/costs.h>
#include <dunlin/dataset.h>
#include <dunlin/metrics.h>
#include <dunlin/model.h>
#include <dunlin/parameters.h>
#include <dunlin/pipeline.h>
#include <dunlin/pixels.h>
#include <dunlin/predictor.h>
#include <dunlin/source.h>
#include <dunlin/trainer.h>
#undef DUNLIN_HAS_TRAINER_HEADERS
#endif

#endif
