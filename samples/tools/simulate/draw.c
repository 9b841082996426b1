/*
 * draw.c - seeded draws: the same on every machine, but for the last bits of the normal ones.
 */
#include "devices.h"

#include <math.h>

#define STEP 0x9E3779B97F4A7C15ULL
#define PI 3.14159265358979323846

uint64_t sim_draw_bits(sim_draw *draw)
{
    draw->state += STEP;
    uint64_t z = draw->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* Each part goes through the mixer, so that neighbours have nothing in common. */
sim_draw sim_draw_begin(uint64_t seed, uint64_t index, uint64_t what)
{
    sim_draw draw = {seed};
    draw.state = sim_draw_bits(&draw) ^ index;
    draw.state = sim_draw_bits(&draw) ^ what;
    draw.state = sim_draw_bits(&draw);
    return draw;
}

double sim_draw_unit(sim_draw *draw)
{
    return (double)(sim_draw_bits(draw) >> 11) * 0x1p-53;
}

double sim_draw_normal(sim_draw *draw, double mean, double deviation)
{
    const double radius = sqrt(-2.0 * log(1.0 - sim_draw_unit(draw)));
    return mean + deviation * radius * cos(2.0 * PI * sim_draw_unit(draw));
}
