/*
 * http_tell.h - counts answers by call and result, and logs refusals.
 */
#ifndef DUNLIN_SERVER_HTTP_TELL_H
#define DUNLIN_SERVER_HTTP_TELL_H

#include "exchange.h"

/* To be called once for each answer that is sent, but for a view's (http_views.h). */
void dunlin__http_tell(const dunlin__exchange *now);

#endif
