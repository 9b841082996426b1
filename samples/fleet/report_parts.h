/*
 * report_parts.h - the files that the report is made of, turned into C by the build (embed.cmake).
 */
#ifndef SAMPLES_FLEET_REPORT_PARTS_H
#define SAMPLES_FLEET_REPORT_PARTS_H

#include <stddef.h>

extern const unsigned char fleet_report_template[];
extern const size_t fleet_report_template_bytes;
extern const unsigned char fleet_report_charts[];
extern const size_t fleet_report_charts_bytes;

#endif
