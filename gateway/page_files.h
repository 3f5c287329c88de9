/* What page_files.S puts into the program: the first byte of each file, and the first behind it. */
#ifndef GATEWAY_PAGE_FILES_H
#define GATEWAY_PAGE_FILES_H

extern const char page_html[], page_html_end[];
extern const char page_css[], page_css_end[];
extern const char page_js[], page_js_end[];
extern const char page_xterm_js[], page_xterm_js_end[];
extern const char page_xterm_css[], page_xterm_css_end[];
extern const char page_fit_js[], page_fit_js_end[];
extern const char page_openapi[], page_openapi_end[]; /* JSON */

#endif
