/* Loaded into a server before its libraries: every sync takes three seconds, as on a disk that is busy. */
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int file) {
    sleep(3);
    return syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    sleep(3);
    return syscall(SYS_fsync, file);
}
