/*
 * energy.c - joules of devices by an estimate, and batteries that fall by them.
 *
 * Computing takes the class's watts for its time. A radio takes (the model of Huang et al.: A close
 * examination of performance and power characteristics of 4G LTE networks, MobiSys 2012)
 *
 *     P = a_up x rate up + a_down x rate down + b        mW, rates in Mbit/s
 *
 * while it moves bytes, so a transfer of n bytes at r bytes a second takes a x 8 n / 1e6 + b x n /
 * r millijoules. Waking it up and its tail are left out.
 *
 * Invariant: what was used is never given back but by the charger.
 */
#include "simulation.h"

#include <math.h>

#define POINTS_AN_HOUR 40.0 /* that a charger gives, as in the profiles */
#define HOUR_US (3600.0 * 1e6)
#define LOOKS 4096 /* entries of the trace, for one that has charge enough */

static const sim_class *class_of(const sim_client *client)
{
    return &client->sim->devices.classes[client->device->class_index];
}

/* ---- the battery ---- */

static double debt_at(const sim_client *client, int64_t us)
{
    const sim_used *used = &client->used;
    if (used->debt <= 0.0 || us <= used->debt_us) {
        return used->debt;
    }
    const double needed_us = ceil(used->debt / POINTS_AN_HOUR * HOUR_US);
    const int64_t charged_us = sim_charging_us(&client->sim->devices, client->device, used->debt_us,
                                               us, (int64_t)needed_us);
    const double debt = used->debt - POINTS_AN_HOUR * (double)charged_us / HOUR_US;
    return debt > 0.0 ? debt : 0.0;
}

static void use(sim_client *client, double joules)
{
    const int64_t now_us = client->sim->now_us;
    const double battery_wh = class_of(client)->battery_wh;
    if (battery_wh > 0.0) {
        client->used.debt = debt_at(client, now_us) + 100.0 * joules / (battery_wh * 3600.0);
        client->used.debt_us = now_us;
    }
}

double sim_client_battery(const sim_client *client, int64_t us)
{
    const double level = (double)sim_moment_at(&client->sim->devices, client->device, us)->battery -
                         debt_at(client, us);
    return level > 0.0 ? level : 0.0;
}

/* An empty battery is too little in any case, unless the trace itself has it so. */
static bool has_charge(const sim_client *client, int64_t us)
{
    const double level = sim_client_battery(client, us);
    return level >= (double)client->sim->devices.least_battery &&
           (level > 0.0 || client->used.debt <= 0.0);
}

bool sim_client_is_ready(const sim_client *client, int64_t us)
{
    return sim_is_ready(&client->sim->devices, client->device, us) && has_charge(client, us);
}

int64_t sim_client_ready_from_us(const sim_client *client, int64_t us)
{
    const sim_devices *devices = &client->sim->devices;
    for (int i = 0; i < LOOKS; i++) {
        us = sim_ready_from_us(devices, client->device, us);
        if (us < 0 || has_charge(client, us)) {
            return us;
        }
        const int64_t change_us = sim_next_change_us(devices, client->device, us);
        if ((sim_moment_at(devices, client->device, us)->state & SIM_CHARGING) != 0) {
            const double least = devices->least_battery > 0 ? devices->least_battery : 1.0;
            const double missing = least - sim_client_battery(client, us);
            const int64_t wait_us = (int64_t)ceil(missing / POINTS_AN_HOUR * HOUR_US) + 1;
            us = wait_us < change_us - us ? us + wait_us : change_us;
        } else {
            us = change_us;
        }
    }
    return -1;
}

/* ---- what is used ---- */

void sim_energy_compute(sim_client *client, int64_t us)
{
    const double joules = class_of(client)->compute_w * (double)us / 1e6;
    client->used.compute_j += joules;
    use(client, joules);
}

void sim_energy_move(sim_client *client, uint64_t sent, uint64_t received)
{
    const sim_device *device = client->device;
    const sim_moment *moment = sim_moment_at(&client->sim->devices, device, client->sim->now_us);
    const sim_radio *by = (moment->state & SIM_UNMETERED) != 0 ? &class_of(client)->wifi
                                                               : &class_of(client)->cellular;
    const double up_s = (double)sent / device->up_per_s;
    const double down_s = (double)received / device->down_per_s;
    const double joules = (by->up * 8e-6 * (double)sent + by->down * 8e-6 * (double)received +
                           by->base * (up_s + down_s)) /
                          1e3;
    client->used.bytes_up += sent;
    client->used.bytes_down += received;
    client->used.radio_j += joules;
    if (joules > 0.0) {
        use(client, joules);
    }
}
