/*
 * energy.h - joules, where the machine counts them: the powercap files of Linux (RAPL and its
 * like), else a battery that is being discharged.
 *
 * What is counted is the whole machine's, other programs' work included.
 */
#ifndef SAMPLES_COMMON_ENERGY_H
#define SAMPLES_COMMON_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_MOST 16

/* What the counters say at one moment. */
typedef struct energy_mark {
    int32_t n;                                             /* packages; 0: none can be read */
    uint64_t microjoules[ENERGY_MOST], range[ENERGY_MOST]; /* it begins again at the range */
    double battery_j;                                      /* left in it; below 0: there is none */
    double charge_c, volts; /* of one that counts coulombs alone; below 0: there is none */
} energy_mark;

/* Reads below a folder like /sys/class: powercap/intel-rapl:N/energy_uj, or else
 * power_supply/NAME/energy_now while its status is Discharging; of a battery without it, as most
 * phones' are, charge_counter or charge_now (microampere-hours) by voltage_now (microvolts). */
energy_mark energy_read(const char *folder);

/* Joules from one mark to the next; not a number where they do not tell. */
double energy_between(const energy_mark *begin, const energy_mark *end);

#endif
