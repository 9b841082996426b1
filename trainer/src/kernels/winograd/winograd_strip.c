/*
 * winograd_strip.c - where the pixels of a piece's tiles lie, for the map and for the gradients: in
 * the source, or in a strip that is written.
 */
#include "winograd.h"

const float *K(winograd_strip)(strip_layout *layout, const grid_piece *piece, float *strip)
{
    const conv_view *tiles = layout->view;
    K(strip_fit)(layout, piece->u1 - piece->u0, 0, view_depth(tiles));
    if (!layout->is_direct) {
        K(strip_write)(layout, piece, strip);
        return strip;
    }
    const strip_source *source = &layout->source;
    const float *from = source->view != NULL ? source->view->x : source->grad->g;
    const int64_t line = piece->sample * tiles->h.n_source + tiles->h.offset + 2 * piece->t0;
    return from + (line * tiles->w.n_source + tiles->w.offset + 2 * piece->u0) * layout->pitch;
}
