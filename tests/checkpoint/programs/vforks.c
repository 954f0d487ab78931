/* Waits for the child of its vfork, and cannot be stopped meanwhile: the child ends when there is a file `go`. Says so, and ends when
 * there is a file `end`. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    puts("begins");
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        while (access("go", F_OK) < 0)
            usleep(1000);
        _exit(0);
    }
    puts(child > 0 && waitpid(child, NULL, 0) == child ? "goes on" : "has no child");
    fflush(stdout);
    while (access("end", F_OK) < 0)
        usleep(1000);
    return 0;
}
