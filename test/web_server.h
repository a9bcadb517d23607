/* test/http_server.py as a child of a test program. */
#ifndef VITTRAIN_TEST_WEB_SERVER_H
#define VITTRAIN_TEST_WEB_SERVER_H

#include <stdbool.h>

/* false: there is no python3. Files are served from `directory`. */
bool web_server_open(const char *directory);
void web_server_close(void);

/* "http://127.0.0.1:PORT/" and the rest; lives until the next call. */
const char *web_server_url(const char *rest);

#endif
