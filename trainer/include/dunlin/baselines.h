/*
 * baselines.h - published policies and swapping to a file, to compare the trainer with.
 *
 * They are a library of their own, dunlin_baselines (CMake: dunlin::baselines, pkg-config:
 * dunlin-baselines), which an app has no use for: the policies RECOMPUTE, SGC, SAGE, MELON,
 * SUBLINEAR, VDNN and CAPUCHIN do what their papers describe, and AUTO asks none of them.
 *
 * Example: options of a trainer that plans as Melon describes.
 *
 * @code
 * #include <dunlin/trainer.h>
 *
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * options.policy = DUNLIN_POLICY_MELON;
 * options.baselines = dunlin_baselines_published();
 * printf("policy %d\n", (int)options.policy);
 * @endcode
 */
#ifndef DUNLIN_BASELINES_H
#define DUNLIN_BASELINES_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_baselines dunlin_baselines;

/*
 * All of them, for dunlin_trainer_options.baselines. It is valid as long as the program runs, and
 * any number of trainers may point to it.
 *
 * @return never NULL.
 */
DUNLIN_API const dunlin_baselines *dunlin_baselines_published(void);

#ifdef __cplusplus
}
#endif

#endif
