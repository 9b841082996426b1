/*
 * properties.h - named texts of the application, kept in checkpoints.
 */
#ifndef DUNLIN_STEP_PROPERTIES_H
#define DUNLIN_STEP_PROPERTIES_H

#include "step/context/context.h"

/* Sets or replaces one. ARGUMENT (texts too long, no name), LIMIT (too many), MEMORY, BUDGET. */
DUNLIN_NODISCARD dunlin_status dunlin__properties_set(const dunlin_trainer *trainer,
                                                      dunlin_properties *properties,
                                                      const char *name, const char *text);

#endif
