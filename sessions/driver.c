#include "sessions/driver.h"

const char driver_bash[] =
#include "driver_bash.inc"
    ;

const char driver_posix[] =
#include "driver_posix.inc"
    ;
