/*
 * export_scales.h - the exponents of a trainer in integers, as the ONNX writer takes them.
 */
#ifndef DUNLIN_STEP_EXPORT_SCALES_H
#define DUNLIN_STEP_EXPORT_SCALES_H

#include "convert/read/onnx.h"
#include "step/context/context.h"

typedef struct dunlin__export_scales {
    dunlin_onnx_scales scales;
    int32_t *exponents; /* of the parameters, then of the values */
} dunlin__export_scales;

/* UNSUPPORTED in float32; STATE where a value has no scale yet; MEMORY. Follow by the close, also
 * after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__export_scales_open(dunlin_trainer *trainer,
                                                          dunlin__export_scales *out);
void dunlin__export_scales_close(const dunlin_trainer *trainer, dunlin__export_scales *scales);

#endif
