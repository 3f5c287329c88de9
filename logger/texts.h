/* The life of a log writer of plain files: packets of init about them (logger/message.h). */
#ifndef LOGGER_TEXTS_H
#define LOGGER_TEXTS_H

/* Serve until the socket ends. */
void texts_run(void);

#endif
