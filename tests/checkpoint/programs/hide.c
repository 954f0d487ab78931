/* Runs a program on a kernel that lacks some system calls: `hide NUMBER... -- PROGRAM ARGUMENT...`. They answer ENOSYS. With
 * NUMBER:PLACE:VALUE it lacks what the call does when it is given that value in that place, and it answers EINVAL; who does
 * one that is given with a minus sign before it dies. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    const struct sock_filter load = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    struct sock_filter code[64];
    unsigned short length = 0;
    int at = 1;
    for (; at < count && strcmp(arguments[at], "--") != 0 && length < 56; at++) {
        unsigned number = 0, place = 0, value = 0;
        bool dies = *arguments[at] == '-';
        int given = sscanf(arguments[at] + dies, "%u:%u:%i", &number, &place, (int *)&value);
        code[length++] = load;
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, given == 3 ? 3 : 1);
        if (given == 3) {
            code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + place * 8);
            code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
        }
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, dies ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (given == 3 ? EINVAL : ENOSYS));
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 || at + 1 >= count)
        return 2;
    execv(arguments[at + 1], arguments + at + 1);
    return 2;
}
