/*
 * trace.c - where a device stands at a moment: a search in its trace, which repeats.
 */
#include "devices.h"

/* The index of the entry that holds at `second` of the period. */
static int32_t index_at(const sim_device *device, int64_t second)
{
    int32_t low = 0;
    int32_t high = device->n_moments - 1;
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (device->trace[middle].at_s <= second) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

const sim_moment *sim_moment_at(const sim_devices *devices, const sim_device *device, int64_t us)
{
    return &device->trace[index_at(device, us % devices->period_us / SIM_US_PER_S)];
}

int64_t sim_next_change_us(const sim_devices *devices, const sim_device *device, int64_t us)
{
    const int64_t begun_us = us - us % devices->period_us;
    const int32_t next = index_at(device, us % devices->period_us / SIM_US_PER_S) + 1;
    return next < device->n_moments ? begun_us + device->trace[next].at_s * SIM_US_PER_S
                                    : begun_us + devices->period_us;
}

static bool is_ready(const sim_devices *devices, const sim_moment *moment)
{
    return (moment->state & devices->needs) == devices->needs &&
           moment->battery >= devices->least_battery;
}

bool sim_is_ready(const sim_devices *devices, const sim_device *device, int64_t us)
{
    return is_ready(devices, sim_moment_at(devices, device, us));
}

static bool is_online(const sim_devices *devices, const sim_moment *moment)
{
    (void)devices;
    return (moment->state & SIM_ONLINE) != 0;
}

/* The first time from `us` on at which `holds` does, by one look at the whole of a period. */
static int64_t first_from(const sim_devices *devices, const sim_device *device, int64_t us,
                          bool (*holds)(const sim_devices *, const sim_moment *))
{
    for (int32_t i = 0; i <= device->n_moments; i++) {
        if (holds(devices, sim_moment_at(devices, device, us))) {
            return us;
        }
        us = sim_next_change_us(devices, device, us);
    }
    return -1;
}

int64_t sim_ready_from_us(const sim_devices *devices, const sim_device *device, int64_t us)
{
    return first_from(devices, device, us, is_ready);
}

int64_t sim_online_from_us(const sim_devices *devices, const sim_device *device, int64_t us)
{
    return first_from(devices, device, us, is_online);
}

int64_t sim_online_end_us(const sim_devices *devices, const sim_device *device, int64_t us,
                          int64_t work_us)
{
    for (;;) {
        us = sim_online_from_us(devices, device, us);
        if (us < 0) {
            return -1;
        }
        const int64_t until_us = sim_next_change_us(devices, device, us);
        if (until_us - us >= work_us) {
            return us + work_us;
        }
        work_us -= until_us - us;
        us = until_us;
    }
}

int64_t sim_charging_us(const sim_devices *devices, const sim_device *device, int64_t from_us,
                        int64_t to_us, int64_t most_us)
{
    int64_t sum_us = 0;
    while (from_us < to_us && sum_us < most_us) {
        const int64_t change_us = sim_next_change_us(devices, device, from_us);
        const int64_t until_us = change_us < to_us ? change_us : to_us;
        if ((sim_moment_at(devices, device, from_us)->state & SIM_CHARGING) != 0) {
            sum_us += until_us - from_us;
        }
        from_us = until_us;
    }
    return sum_us < most_us ? sum_us : most_us;
}

uint64_t sim_least_memory(const sim_device *device)
{
    uint64_t least = UINT64_MAX;
    for (int32_t i = 0; i < device->n_moments; i++) {
        least = device->trace[i].memory_bytes < least ? device->trace[i].memory_bytes : least;
    }
    return least;
}

uint64_t sim_most_memory(const sim_device *device)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < device->n_moments; i++) {
        most = device->trace[i].memory_bytes > most ? device->trace[i].memory_bytes : most;
    }
    return most;
}
