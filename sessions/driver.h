/* The shell drivers (driver.bash.sh, driver.posix.sh), embedded at build time. */
#ifndef SESSIONS_DRIVER_H
#define SESSIONS_DRIVER_H

extern const char driver_bash[];
extern const char driver_posix[];

#endif
